#include "config/keys.h"

#include <unordered_map>

#include "config/convert.h"
#include "config/parse.h"

namespace gannet::config {
namespace {

struct KeyIndex {
  std::vector<const Key*> rows;
  // Also maps paths that end in an alias.
  std::unordered_map<std::string, const Key*> by_path;
  std::unordered_map<const Key*, Value> defaults;
};

// Built once at first use and never destroyed: a Config may be read while the process exits.
const KeyIndex& index() {
  static const KeyIndex* const built = [] {
    auto* result = new KeyIndex;
    for (const auto part : {training_keys(), precision_keys(), zero_keys(), storage_keys(), activation_keys(), monitoring_keys(),
                            parallel_keys(), data_keys(), scaling_keys()}) {
      for (const Key& key : part) {
        result->rows.push_back(&key);
        result->by_path.emplace(key.path, &key);
        if (!key.alias.empty())
          result->by_path.emplace(std::string(key.path.substr(0, key.path.size() - key.name().size())) + std::string(key.alias),
                                  &key);
        const Value value = parse_value(key.default_json);
        result->defaults.emplace(&key,
                                 value.is_null() || value == Value("auto") ? value : convert(key, value, std::string(key.path)));
      }
    }
    return result;
  }();
  return *built;
}

}  // namespace

const std::vector<const Key*>& all_keys() { return index().rows; }

const Key* find_key(std::string_view path) {
  const auto found = index().by_path.find(std::string(path));
  return found == index().by_path.end() ? nullptr : found->second;
}

std::vector<const Key*> members_of(std::string_view section) {
  std::vector<const Key*> result;
  const size_t prefix = section.empty() ? 0 : section.size() + 1;
  for (const Key* key : all_keys())
    if (key->path.size() - key->name().size() == prefix && key->path.starts_with(section)) result.push_back(key);
  return result;
}

std::vector<const Key*> keys_named(std::string_view name) {
  std::vector<const Key*> result;
  for (const Key* key : all_keys())
    if (key->name() == name || key->alias == name) result.push_back(key);
  return result;
}

const Value& default_of(const Key& key) { return index().defaults.at(&key); }

const char* to_string(Type type) {
  switch (type) {
    case Type::kBool:
      return "boolean";
    case Type::kInt:
      return "integer";
    case Type::kSize:
    case Type::kBytes:
      return "size";
    case Type::kNumber:
      return "number";
    case Type::kString:
      return "string";
    case Type::kChoice:
    case Type::kWord:
      return "choice";
    case Type::kDType:
      return "dtype";
    case Type::kList:
      return "list";
    case Type::kFile:
      return "file";
    case Type::kStrings:
      return "strings";
    case Type::kObjects:
      return "objects";
    case Type::kAny:
      return "any";
    case Type::kSection:
    case Type::kOpenSection:
      return "section";
    case Type::kFree:
      return "object";
  }
  return "";
}

const char* to_string(Status status) {
  switch (status) {
    case Status::kActive:
      return "active";
    case Status::kAtZero:
      return "active at ZeRO stage 1 and above";
    case Status::kAtStage3:
      return "active at ZeRO stage 3";
    case Status::kWithNvme:
      return "active with offload to nvme";
    case Status::kNoEffect:
      return "no effect";
    case Status::kNotAtStage3:
    case Status::kUnsupported:
      return "unsupported";
  }
  return "";
}

}  // namespace gannet::config
