/// The config.json next to a model's weights, as Hugging Face writes it. A model reads its own
/// struct of sizes from it.
///
///   const auto json = gannet::ModelConfig::read("gpt2-folder");
///   json.require_type({"gpt2"});
///   const int64_t width = json.size("n_embd", 768);      // must be positive, else Error(kConfig) with the file and the key
///
/// A key that is missing or null has its default, as with Hugging Face's classes.
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace gannet {

class ModelConfig {
 public:
  /// `where` is the prefix of error messages, such as the path of the file.
  explicit ModelConfig(Dict values, std::string where = "the model's config");
  /// Reads `folder`/config.json, or `folder` itself if it is a file. Throws Error(kNotFound), and
  /// Error(kConfig) with line and column.
  static ModelConfig read(const std::string& folder);

  /// Replaces values at the top level.
  ModelConfig& overwrite(const Dict& values);
  /// Call it after a model has read its sizes. Throws Error(kArgument) for a name in `overwritten`
  /// that is not in the file and that the model did not read, since it is probably misspelt.
  void require_known(const Dict& overwritten) const;
  /// Throws Error(kUnsupported) unless model_type is one of `types`; a config without a model_type
  /// passes. `advice`: the error's next step.
  void require_type(
      std::initializer_list<const char*> types,
      const std::string& advice = "build the model of that type (docs/models.md lists them), or one of your own") const;
  /// Throws Error(kUnsupported): "config.json: hidden_act is 'swish2', and <what>".
  [[noreturn]] void refuse(std::string_view key, const std::string& what) const;

  /// Returns null if the key is missing or its value is null.
  const Value* find(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t fallback) const;
  int64_t size(std::string_view key, int64_t fallback) const;  ///< an integer of at least 1
  double number(std::string_view key, double fallback) const;
  bool flag(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, const std::string& fallback) const;
  /// A nested dictionary; empty if the key is missing.
  ModelConfig section(std::string_view key) const;

  const Dict& values() const;  ///< all values; every name then counts as read
  const std::string& where() const { return where_; }

 private:
  [[noreturn]] void wrong(std::string_view key, const Value& found, const char* wanted) const;

  Dict values_;
  std::string where_;
  std::set<std::string> of_file_;  // names of the file's keys, before any overwrite
  struct RequestedKeys {
    std::set<std::string> names;
    bool is_all = false;
  };
  std::shared_ptr<RequestedKeys> asked_ = std::make_shared<RequestedKeys>();
};

}  // namespace gannet
