#include "files/object.h"

namespace gannet::files {

int64_t StoredTensor::numel() const {
  int64_t numel = 1;
  for (const int64_t size : sizes) numel *= size;
  return numel;
}

const Object* Object::find(std::string_view key) const {
  for (const auto& [name, value] : entries)
    if (name && name->kind == Kind::kString && name->text == key) return value.get();
  return nullptr;
}

const char* Object::kind_name() const {
  switch (kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a boolean";
    case Kind::kInt:
      return "an integer";
    case Kind::kNumber:
      return "a number";
    case Kind::kString:
      return "a string";
    case Kind::kBytes:
      return "bytes";
    case Kind::kList:
      return "a list";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kSet:
      return "a set";
    case Kind::kDict:
      return "a dict";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kStorage:
      return "a storage";
    case Kind::kRecord:
      return "an object";
  }
  return "unknown";
}

}  // namespace gannet::files
