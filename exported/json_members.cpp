#include "json_members.h"

#include <gannet/error.h>

#include <algorithm>

namespace gannet::exported {

void refuse_file(const std::string& where, const std::string& found) {
  throw Error(ErrorCode::kCorrupt, where + ": " + found, "export the model again, or copy the file again");
}

void require_name(const std::string& name, const std::string& where) {
  if (name.size() > 1024) refuse_file(where, "a name has " + std::to_string(name.size()) + " bytes, and 1024 are allowed");
  const auto is_control = [](unsigned char letter) { return letter < 0x20 || letter == 0x7f; };
  if (std::any_of(name.begin(), name.end(), is_control)) refuse_file(where, "a name has control characters");
}

const Value& member(const Value& object, const char* key, const std::string& where) {
  if (!object.is_dict()) refuse_file(where, std::string("an object { ... } is expected, found ") + object.type_name());
  const Value* found = object.as_dict().find(key);
  if (!found) refuse_file(where, std::string("'") + key + "' is missing");
  return *found;
}

std::string text(const Value& object, const char* key, const std::string& where) {
  const Value& found = member(object, key, where);
  if (!found.is_string()) refuse_file(where, std::string("'") + key + "' is " + found.type_name() + ", and a string is expected");
  require_name(found.as_string(), where);
  return found.as_string();
}

int64_t integer(const Value& object, const char* key, const std::string& where) {
  const Value& found = member(object, key, where);
  if (!found.is_int()) refuse_file(where, std::string("'") + key + "' is " + found.type_name() + ", and an integer is expected");
  return found.as_int();
}

const List& list(const Value& object, const char* key, const std::string& where) {
  const Value& found = member(object, key, where);
  if (!found.is_list()) refuse_file(where, std::string("'") + key + "' is " + found.type_name() + ", and a list is expected");
  return found.as_list();
}

}  // namespace gannet::exported
