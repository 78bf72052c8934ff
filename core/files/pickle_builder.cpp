#include "files/pickle_builder.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "base/text.h"

namespace gannet::files {

uint64_t pickle_memory(uint64_t file_bytes) {
  constexpr uint64_t kHarmless = 256 << 20;
  return std::max(kHarmless, file_bytes > UINT64_MAX / 2 ? file_bytes : 2 * file_bytes);
}

void PickleBuilder::charge(uint64_t bytes) {
  if (bytes <= memory_bytes_ - charged_bytes_) {
    charged_bytes_ += bytes;
    return;
  }
  unsupported(formatted("what the pickle builds takes more than {}, twice the file", size_text(memory_bytes_)),
              "keep large lists of numbers as tensors; a file from someone else may be made to fill memory");
}

void PickleBuilder::unsupported(const std::string& what, const std::string& next_step) const {
  throw Error(ErrorCode::kUnsupported, formatted("{}: at byte {}: {}", cursor_.path(), cursor_.offset(), what), next_step);
}

PickleObject* PickleBuilder::make(Object::Kind kind) {
  charge(sizeof(PickleObject) + 2 * sizeof(void*));
  PickleObject* object = &objects_.emplace_back();
  object->kind = kind;
  return object;
}

PickleObject* PickleBuilder::make(Object::Kind kind, std::string text) {
  charge(text.capacity());
  PickleObject* object = make(kind);
  object->text = std::move(text);
  return object;
}

PickleObject* PickleBuilder::shared(PickleObject*& one, Object::Kind kind) {
  if (!one) one = make(kind);
  return one;
}

PickleObject* PickleBuilder::boolean(bool value) {
  PickleObject* object = shared(value ? true_ : false_, Object::Kind::kBool);
  object->boolean = value;
  return object;
}

PickleObject* PickleBuilder::integer(int64_t value) {
  constexpr int64_t kSmall = 256;  // most integers in a checkpoint are sizes, counters and flags below this
  if (value >= 0 && value < kSmall) {
    if (small_integers_.empty()) {
      charge(kSmall * sizeof(PickleObject*));
      small_integers_.resize(kSmall);
    }
    PickleObject*& one = small_integers_[static_cast<size_t>(value)];
    shared(one, Object::Kind::kInt)->integer = value;
    return one;
  }
  PickleObject* object = make(Object::Kind::kInt);
  object->integer = value;
  return object;
}

// A pickler completes an object before putting it into another. Requiring that order excludes
// cycles and keeps the depth exact.
bool PickleBuilder::hold(PickleObject& outer, const Object& inner) {
  auto& built = static_cast<PickleObject&>(const_cast<Object&>(inner));  // make() created every object
  if (outer.as_class) corrupt(formatted("the class {} is changed", shown(outer.text)));
  if ((outer.is_inside || &outer == &built) && outer.kind == Object::Kind::kRecord) {
    outer.is_cut = true;
    return false;
  }
  if (outer.is_inside || &outer == &built)
    unsupported(formatted("{} is changed after it was put into another, or into itself", outer.kind_name()),
                "save a state_dict whose containers do not contain themselves");
  built.is_inside = true;
  outer.depth = std::max(outer.depth, built.depth + 1);
  if (outer.depth > kMaxDepth)
    unsupported(formatted("containers are nested more than {} deep", kMaxDepth), "save a flatter dict");
  return true;
}

void PickleBuilder::add_item(PickleObject& to, PickleObject& item) {
  if (!hold(to, item)) return;
  grow(to.items, 1);
  to.items.emplace_back(ObjectRef(), &item);
}

void PickleBuilder::add_entry(PickleObject& to, PickleObject& key, PickleObject& value) {
  if (!hold(to, key) || !hold(to, value)) return;
  grow(to.entries, 1);
  to.entries.emplace_back(ObjectRef(ObjectRef(), &key), ObjectRef(ObjectRef(), &value));
}

void PickleBuilder::add_items_of(PickleObject& to, const PickleObject& from) {
  if (from.kind != Object::Kind::kList && from.kind != Object::Kind::kTuple && from.kind != Object::Kind::kSet)
    corrupt(std::string("a list or a tuple should be here, found ") + from.kind_name());
  if (&to == &from) corrupt("a list is added to itself");
  grow(to.items, from.items.size());
  for (const ObjectRef& item : from.items) {
    if (hold(to, *item)) to.items.push_back(item);
  }
}

void PickleBuilder::add_entries_of(PickleObject& to, const PickleObject& from) {
  if (from.kind != Object::Kind::kDict) corrupt(std::string("a dict should be here, found ") + from.kind_name());
  if (&to == &from) corrupt("a dict is added to itself");
  grow(to.entries, from.entries.size());
  for (const auto& [key, value] : from.entries) {
    if (hold(to, *key) && hold(to, *value)) to.entries.emplace_back(key, value);
  }
}

// Python keeps the later of two entries with the same key; no pickler writes both.
void PickleBuilder::check_keys() {
  size_t most = 0;
  for (const PickleObject& object : objects_)
    most = std::max(most, object.kind == Object::Kind::kDict ? object.entries.size() : 0);
  std::vector<std::string_view> keys;
  grow(keys, most);
  for (const PickleObject& object : objects_) {
    if (object.kind != Object::Kind::kDict || object.entries.size() < 2) continue;
    keys.clear();
    for (const auto& [key, value] : object.entries)
      if (key->kind == Object::Kind::kString) keys.push_back(key->text);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) corrupt(formatted("a dict of this pickle has the key {} twice", shown(*twice)));
  }
}

Pickle PickleBuilder::finish(PickleObject& root) && {
  check_keys();
  Pickle pickle;
  pickle.arena = std::make_shared<const std::deque<PickleObject>>(std::move(objects_));
  pickle.root = &root;  // moving a deque does not move its objects
  pickle.storages = std::move(storages_);
  return pickle;
}

}  // namespace gannet::files
