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

#include <memory>
#include <string>

namespace gannet {

namespace config {
class Document;
}

class Config {
 public:
  Config() = default;  ///< nothing given: initialize says so
  Config(const char* path_or_json) : Config(std::string(path_or_json)) {}
  Config(const std::string& path_or_json);
  Config(const Dict& dictionary);

  /// Merges `dictionary` over what is there, key by key and deep; `origin` is named as provenance ("code", "command line").
  Config& overwrite(const Dict& dictionary, const std::string& origin = "code");

  bool empty() const { return document_ == nullptr; }
  /// For the core's own rooms.
  const std::shared_ptr<const config::Document>& document() const { return document_; }

 private:
  std::shared_ptr<const config::Document> document_;
};

}  // namespace gannet
