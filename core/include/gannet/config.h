/// The config of a run: DeepSpeed's ds_config.json, read strictly.
///
///   gannet::Config config("ds_config.json");                        // a file, or JSON text that begins with '{'
///   gannet::Config config(gannet::Dict{{"train_batch_size", 8}});   // a dictionary made in code
///   config.overwrite(gannet::Dict{{"optimizer", gannet::Dict{{"params", gannet::Dict{{"lr", 1e-4}}}}}}, "command line");
///
/// Reading checks syntax, keys, types and ranges (Error(kConfig) with file:line:column); what depends on the number of ranks
/// is checked by gannet::initialize. Every value knows where it came from.
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

/// A value of the config, as `Config::get` and `Config::resolve` give it.
struct ConfigEntry {
  std::string path;    ///< "zero_optimization.stage"
  Value value;         ///< "auto" stays the text "auto" where nothing has filled it
  std::string type;    ///< of the key's row ("integer"); of the value itself inside `params`
  std::string origin;  ///< "ds_config.json:3:5", "command line", "default"
};

class Config {
 public:
  Config() = default;  ///< nothing given: initialize says so
  Config(const char* path_or_json) : Config(std::string(path_or_json)) {}
  Config(const std::string& path_or_json);
  Config(const Dict& dictionary);
  /// For the core's own rooms.
  explicit Config(std::shared_ptr<const config::Document> document) : document_(std::move(document)) {}

  /// Merges `dictionary` over what is there, key by key and deep; `origin` is named as provenance ("code", "command line").
  Config& overwrite(const Dict& dictionary, const std::string& origin = "code");

  static Config from_dict(const Dict& dictionary, const std::string& origin = "code");

  /// Sets one value: fill("zero_optimization.stage", 3, "program"). The key and the value are checked as those of a file are.
  Config& fill(const std::string& path, const Value& value, const std::string& origin);

  /// One value by its path, parts separated by dots or slashes; the default where the config has none. Error(kConfig) where
  /// the key table has no such key. A Config is a value: no object must stay alive for what was read from it.
  ConfigEntry get(const std::string& path) const;
  bool is_auto(const std::string& path) const;
  /// The ZeRO stage. Known before the model is built, so that a program can choose zero::Init.
  int64_t stage() const;
  bool is_zero3() const { return stage() == 3; }
  /// ZeRO offloads the optimizer or, at stage 3, the parameters.
  bool is_offload() const;

  /// Every value that Gannet acts on with its origin, batch sizes computed. Throws what initialize would.
  std::vector<ConfigEntry> resolve(int64_t world_size) const;
  /// Whether the values fit together; each mistake as a sentence goes to `mistakes`.
  bool is_valid(int64_t world_size, std::vector<std::string>* mistakes = nullptr) const;

  bool empty() const { return document_ == nullptr; }
  /// For the core's own rooms.
  const std::shared_ptr<const config::Document>& document() const { return document_; }

 private:
  std::shared_ptr<const config::Document> document_;
};

}  // namespace gannet
