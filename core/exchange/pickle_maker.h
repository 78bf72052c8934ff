// The objects of one pickle while it is read: made under a limit of memory, put into one another so that no circle can arise.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exchange/bytes.h"
#include "exchange/object.h"
#include "exchange/pickle.h"
#include "exchange/pickle_classes.h"

namespace gannet::exchange {

struct Built : Object {
  std::optional<KnownClass> as_class;  // a class itself, not an object of it
  bool is_inside = false;              // another object holds it: from then on it may not change
  int depth = 0;                       // of what it holds, 0 for a leaf
};

class Maker {
 public:
  Maker(const Cursor& cursor, const PickleLimits& limits) : cursor_(cursor), memory_bytes_(limits.memory_bytes) {}

  Built* make(Object::Kind kind);
  Built* make(Object::Kind kind, std::string text);
  Built* integer(int64_t value);
  Built* none() { return shared(none_, Object::Kind::kNone); }
  Built* boolean(bool value);

  void add_item(Built& to, Built& item);
  void add_entry(Built& to, Built& key, Built& value);
  void add_items_of(Built& to, const Built& from);    // those of a list, a tuple or a set
  void add_entries_of(Built& to, const Built& from);  // those of a dict

  // What the class `callee` makes of its arguments, a tuple: data, whatever it is.
  Built* call(const Built& callee, const Built& arguments);
  Built* storage(const Built& id);  // what torch.save's persistent id stands for

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

  Pickle finish(Built& root) &&;

 private:
  Built* shared(Built*& one, Object::Kind kind);
  void hold(Built& outer, const Object& inner);
  Built* tensor(const KnownClass& callee, const Built& arguments);
  Built* parameter(const Built& arguments);
  Built* of_subclass(const Built& arguments);
  Built* bytes(const Built& arguments);
  void check_keys();

  const Cursor& cursor_;
  uint64_t memory_bytes_, charged_bytes_ = 0;
  std::deque<Built> objects_;
  Built *none_ = nullptr, *true_ = nullptr, *false_ = nullptr;
  std::vector<Built*> small_integers_;
  std::map<std::string, NamedStorage> storages_;
};

}  // namespace gannet::exchange
