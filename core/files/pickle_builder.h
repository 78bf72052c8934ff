// Builds the objects of one pickle under a memory limit, and prevents cycles.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "files/bytes.h"
#include "files/object.h"
#include "files/pickle.h"
#include "files/pickle_classes.h"

namespace gannet::files {

struct PickleObject : Object {
  std::optional<KnownClass> as_class;  // set if the object is a class itself, not an instance
  bool is_inside = false;              // held by another object: it may no longer change
  int depth = 0;                       // levels of objects inside this one; 0 for a leaf
};

class PickleBuilder {
 public:
  PickleBuilder(const Cursor& cursor, const PickleLimits& limits) : cursor_(cursor), memory_bytes_(limits.memory_bytes) {}

  PickleObject* make(Object::Kind kind);
  PickleObject* make(Object::Kind kind, std::string text);
  PickleObject* integer(int64_t value);
  PickleObject* none() { return shared(none_, Object::Kind::kNone); }
  PickleObject* boolean(bool value);

  void add_item(PickleObject& to, PickleObject& item);
  void add_entry(PickleObject& to, PickleObject& key, PickleObject& value);
  void add_items_of(PickleObject& to, const PickleObject& from);    // from a list, a tuple or a set
  void add_entries_of(PickleObject& to, const PickleObject& from);  // from a dict

  // Calls the class `callee` with a tuple of arguments. Whatever the class, the result is only
  // data.
  PickleObject* call(const PickleObject& callee, const PickleObject& arguments);
  PickleObject* storage(const PickleObject& id);  // resolves a persistent id of torch.save

  // Memory is charged before it is allocated and never refunded.
  void charge(uint64_t bytes);
  template <class T>
  void grow(std::vector<T>& vector, size_t more) {
    if (vector.size() + more <= vector.capacity()) return;
    const size_t capacity = std::max(vector.size() + more, 2 * vector.capacity());
    charge(capacity * sizeof(T));
    vector.reserve(capacity);
  }
  [[noreturn]] void corrupt(const std::string& what) const { cursor_.corrupt(what); }
  [[noreturn]] void unsupported(const std::string& what, const std::string& next_step) const;

  Pickle finish(PickleObject& root) &&;

 private:
  PickleObject* shared(PickleObject*& one, Object::Kind kind);
  // Records that `outer` contains `inner`: freezes `inner`, updates the depth of `outer`, refuses
  // cycles. Returns false if `outer` is a record that is already held or that holds itself, such as
  // a parent that its children refer to. The reference is then left out (Object::is_cut).
  [[nodiscard]] bool hold(PickleObject& outer, const Object& inner);
  PickleObject* tensor(const KnownClass& callee, const PickleObject& arguments);
  PickleObject* parameter(const PickleObject& arguments);
  PickleObject* of_subclass(const PickleObject& arguments);
  PickleObject* dict(const PickleObject& callee, const PickleObject& arguments);
  PickleObject* bytes(const PickleObject& arguments);
  void check_keys();

  // Has the path and the reader's offset, for messages.
  const Cursor& cursor_;
  uint64_t memory_bytes_, charged_bytes_ = 0;
  // Every object of the pickle. It is a deque, so addresses stay valid while it grows and when
  // finish() moves it into the arena.
  std::deque<PickleObject> objects_;
  // These objects are created on first use and shared, as in CPython. One object per occurrence
  // would exhaust the memory limit.
  PickleObject *none_ = nullptr, *true_ = nullptr, *false_ = nullptr;
  std::vector<PickleObject*> small_integers_;
  // The storages, by the key in their persistent id. tensor() checks the bounds of tensors against
  // their sizes.
  std::map<std::string, NamedStorage> storages_;
};

}  // namespace gannet::files
