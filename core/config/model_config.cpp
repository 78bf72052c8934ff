#include <gannet/error.h>
#include <gannet/model_config.h>

#include <filesystem>

#include "base/format.h"
#include "base/text.h"
#include "config/parse.h"

namespace gannet {

ModelConfig::ModelConfig(Dict values, std::string where) : values_(std::move(values)), where_(std::move(where)) {
  for (const auto& [key, value] : values_.entries()) of_file_.insert(key);
}

const Dict& ModelConfig::values() const {
  asked_->is_all = true;
  return values_;
}

void ModelConfig::require_known(const Dict& overwritten) const {
  if (asked_->is_all) return;
  for (const auto& [key, value] : overwritten.entries()) {
    if (of_file_.contains(key) || asked_->names.contains(key) || key == "model_type" || key == "dtype" || key == "torch_dtype")
      continue;
    throw Error(ErrorCode::kArgument,
                formatted("model_overwrite has {}, which the model does not read{}", in_quotes(key),
                          did_you_mean(key, {asked_->names.begin(), asked_->names.end()})),
                formatted("{} has the names that there are", where_));
  }
}

ModelConfig ModelConfig::read(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code code;
  const std::string path = fs::is_directory(folder, code) ? (fs::path(folder) / "config.json").string() : folder;
  if (!fs::exists(path, code))
    throw Error(ErrorCode::kNotFound, formatted("there is no {}", path),
                "name a folder with config.json and the weights, as save_pretrained() of transformers writes it");
  config::Tree tree = config::parse_file(path);
  return ModelConfig(std::move(tree.root), path);
}

ModelConfig& ModelConfig::overwrite(const Dict& values) {
  for (const auto& [key, value] : values.entries()) values_[key] = value;
  return *this;
}

void ModelConfig::require_type(std::initializer_list<const char*> types, const std::string& advice) const {
  const std::string found = text("model_type", "");
  if (found.empty()) return;
  std::vector<std::string> known;
  for (const char* type : types) {
    if (found == type) return;
    known.push_back(in_quotes(type));
  }
  throw Error(ErrorCode::kUnsupported,
              formatted("{}: model_type is '{}', and this model reads {}", where_, printable(found), join(known, ", ")), advice);
}

void ModelConfig::refuse(std::string_view key, const std::string& what) const {
  const Value* found = find(key);
  throw Error(ErrorCode::kUnsupported,
              formatted("{}: {} is {}, and {}", where_, key, found ? printable(found->to_json()) : "missing", what));
}

void ModelConfig::wrong(std::string_view key, const Value& found, const char* wanted) const {
  throw Error(ErrorCode::kConfig, formatted("{}: {} is {}, {}; it must be {}", where_, key,
                                            printable(found.to_json().substr(0, 80)), found.type_name(), wanted));
}

const Value* ModelConfig::find(std::string_view key) const {
  asked_->names.emplace(key);
  const Value* found = values_.find(key);
  return found && !found->is_null() ? found : nullptr;
}

int64_t ModelConfig::integer(std::string_view key, int64_t fallback) const {
  const Value* found = find(key);
  if (!found) return fallback;
  if (!found->is_int()) wrong(key, *found, "an integer");
  return found->as_int();
}

int64_t ModelConfig::size(std::string_view key, int64_t fallback) const {
  const int64_t found = integer(key, fallback);
  if (found < 1) wrong(key, Value(found), "at least 1");
  return found;
}

double ModelConfig::number(std::string_view key, double fallback) const {
  const Value* found = find(key);
  if (!found) return fallback;
  if (!found->is_number()) wrong(key, *found, "a number");
  return found->as_number();
}

bool ModelConfig::flag(std::string_view key, bool fallback) const {
  const Value* found = find(key);
  if (!found) return fallback;
  if (!found->is_bool()) wrong(key, *found, "true or false");
  return found->as_bool();
}

std::string ModelConfig::text(std::string_view key, const std::string& fallback) const {
  const Value* found = find(key);
  if (!found) return fallback;
  if (!found->is_string()) wrong(key, *found, "a text");
  return found->as_string();
}

ModelConfig ModelConfig::section(std::string_view key) const {
  const Value* found = find(key);
  if (!found) return ModelConfig(Dict(), where_);
  if (!found->is_dict()) wrong(key, *found, "a dictionary");
  return ModelConfig(found->as_dict(), where_);
}

}  // namespace gannet
