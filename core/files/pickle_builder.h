// The objects of one pickle while it is read: made under a limit of memory, put into one another so that no circle can arise.
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
  std::optional<KnownClass> as_class;  // a class itself, not an object of it
  bool is_inside = false;              // another object holds it: from then on it may not change
  int depth = 0;                       // of what it holds, 0 for a leaf
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
  void add_items_of(PickleObject& to, const PickleObject& from);    // those of a list, a tuple or a set
  void add_entries_of(PickleObject& to, const PickleObject& from);  // those of a dict

  // What the class `callee` makes of its arguments, a tuple: data, whatever it is.
  PickleObject* call(const PickleObject& callee, const PickleObject& arguments);
  PickleObject* storage(const PickleObject& id);  // what torch.save's persistent id stands for

  // Memory is counted before it is taken, and never given back.
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
  // Records that `outer` contains `inner`: freezes `inner`, updates the depth of `outer`, refuses cycles. Returns false where
  // `outer` is an object that what it is given refers to, as a parent's children do: that is left out (Object::is_cut).
  [[nodiscard]] bool hold(PickleObject& outer, const Object& inner);
  PickleObject* tensor(const KnownClass& callee, const PickleObject& arguments);
  PickleObject* parameter(const PickleObject& arguments);
  PickleObject* of_subclass(const PickleObject& arguments);
  PickleObject* dict(const PickleObject& callee, const PickleObject& arguments);
  PickleObject* bytes(const PickleObject& arguments);
  void check_keys();

  // For messages: the path, and the offset that the reader has reached.
  const Cursor& cursor_;
  uint64_t memory_bytes_, charged_bytes_ = 0;
  // Every object of the pickle. A deque: addresses stay valid while it grows and when finish() moves it into the arena.
  std::deque<PickleObject> objects_;
  // Made on first use and shared, as in CPython: an object for each occurrence would use up the memory limit.
  PickleObject *none_ = nullptr, *true_ = nullptr, *false_ = nullptr;
  std::vector<PickleObject*> small_integers_;
  // By key, as the persistent ids named them; tensor() checks its bounds against these sizes.
  std::map<std::string, NamedStorage> storages_;
};

}  // namespace gannet::files
