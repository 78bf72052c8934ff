// Stores a row's value in its member.
#include <functional>

#include "config/keys.h"
#include "config/settings.h"

namespace gannet::config {
namespace {

std::optional<DType> dtype(const Value& value) {
  const std::string& name = value.as_string();
  if (name == "int8") return std::nullopt;  // check_precision refuses it, with its position
  return name == "fp16" ? DType::kFloat16 : name == "bf16" ? DType::kBFloat16 : DType::kFloat32;
}

bool is_yes(const Key& key, const Value& value) {
  return key.type == Type::kBool ? value.as_bool() : value.as_string() == key.range.substr(key.range.find('|') + 1);
}

std::vector<std::string> strings(const Value& value) {
  std::vector<std::string> result;
  for (const Value& element : value.as_list()) result.push_back(element.as_string());
  return result;
}

void put_entry(Dict& dict, std::string_view name, const Value& value) {
  if (value.is_null())
    dict.erase(name);
  else
    dict[name] = value;
}

// A null leaves an optional empty and sets any other member to the zero of its type.
template <typename T, typename Read>
void put(void* at, const Value& value, const Read& read) {
  if (value.is_null())
    *static_cast<T*>(at) = T{};
  else
    *static_cast<T*>(at) = read(value);
}

}  // namespace

void store(const Key& key, const Value& value, Settings& settings) {
  if (key.member.kind == Member::Kind::kNone) return;
  void* const at = key.member.of(settings);
  switch (key.member.kind) {
    case Member::Kind::kNone:
      return;
    case Member::Kind::kBool:
      return put<bool>(at, value, [&](const Value& given) { return is_yes(key, given); });
    case Member::Kind::kInt:
      return put<int64_t>(at, value, std::mem_fn(&Value::as_int));
    case Member::Kind::kNumber:
      return put<double>(at, value, std::mem_fn(&Value::as_number));
    case Member::Kind::kString:
      return put<std::string>(at, value, std::mem_fn(&Value::as_string));
    case Member::Kind::kStrings:
      return put<std::vector<std::string>>(at, value, strings);
    case Member::Kind::kList:
      return put<List>(at, value, [](const Value& given) -> const List& { return given.as_list(); });
    case Member::Kind::kDict:
      return put<Dict>(at, value, [](const Value& given) -> const Dict& { return given.as_dict(); });
    case Member::Kind::kEntry:
      return put_entry(*static_cast<Dict*>(at), key.name(), value);
    case Member::Kind::kOptionalInt:
      return put<std::optional<int64_t>>(at, value, std::mem_fn(&Value::as_int));
    case Member::Kind::kOptionalNumber:
      return put<std::optional<double>>(at, value, std::mem_fn(&Value::as_number));
    case Member::Kind::kOptionalDType:
      return put<std::optional<DType>>(at, value, dtype);
  }
}

Settings::Settings() : SettingsMembers{} {
  for (const Key* key : all_keys())
    if (key->member.kind != Member::Kind::kNone) store(*key, default_of(*key), *this);
}

}  // namespace gannet::config
