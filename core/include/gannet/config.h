/// The config of a run: DeepSpeed's ds_config.json, read strictly.
///
///   gannet::Config config("ds_config.json");                        // a file, or JSON text that begins with '{'
///   gannet::Config config(gannet::Dict{{"train_batch_size", 8}});   // a dictionary made in code
///   config.overwrite(gannet::Dict{{"optimizer", gannet::Dict{{"params", gannet::Dict{{"lr", 1e-4}}}}}}, "command line");
///
/// Reading checks syntax, keys, types and ranges (Error(kConfig) with file:line:column); checks
/// that depend on the number of ranks are done by gannet::initialize. Every value records its
/// origin.
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gannet {

namespace config {
class Document;
}

/// A value of the config, as `Config::get` and `Config::resolve` return it.
struct ConfigEntry {
  std::string path;    ///< "zero_optimization.stage"
  Value value;         ///< "auto" remains the string "auto" until it is filled in
  std::string type;    ///< the type in the key's row of the table ("integer"); inside `params`, that of the value
  std::string origin;  ///< "ds_config.json:3:5", "command line", "default"
};

class Config {
 public:
  Config() = default;  ///< no config; initialize then throws an error
  Config(const char* path_or_json) : Config(std::string(path_or_json)) {}
  Config(const std::string& path_or_json);
  Config(const Dict& dictionary);
  /// Used by other parts of the core.
  explicit Config(std::shared_ptr<const config::Document> document) : document_(std::move(document)) {}

  /// Merges `dictionary` into the config recursively, key by key; `origin` is recorded as the
  /// origin of these values ("code", "command line").
  Config& overwrite(const Dict& dictionary, const std::string& origin = "code");

  static Config from_dict(const Dict& dictionary, const std::string& origin = "code");

  /// Sets one value: fill("zero_optimization.stage", 3, "program"). Key and value are checked like
  /// those of a file.
  Config& fill(const std::string& path, const Value& value, const std::string& origin);

  /// Returns one value by its path, with keys separated by dots or slashes; the default if the
  /// config does not set it. Throws Error(kConfig) if the key table has no such key. The result is
  /// a copy, and does not depend on the lifetime of any object.
  ConfigEntry get(const std::string& path) const;
  bool is_auto(const std::string& path) const;
  /// The ZeRO stage. It is known before the model is built, so that a program can choose
  /// zero::Init.
  int64_t stage() const;
  bool is_zero3() const { return stage() == 3; }
  /// Whether ZeRO offloads the optimizer or, at stage 3, the parameters.
  bool is_offload() const;

  /// Every effective value with its origin, including the batch sizes computed for a run of `ranks`.
  /// Throws the errors that initialize would throw.
  std::vector<ConfigEntry> resolve(int64_t ranks) const;
  /// Whether the values are consistent; each error message is appended to `mistakes`.
  bool is_valid(int64_t ranks, std::vector<std::string>* mistakes = nullptr) const;

  bool empty() const { return document_ == nullptr; }
  /// Used by other parts of the core.
  const std::shared_ptr<const config::Document>& document() const { return document_; }

 private:
  std::shared_ptr<const config::Document> document_;
};

}  // namespace gannet
