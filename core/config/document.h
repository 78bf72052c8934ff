// A config as it was written: the merged tree, and for every value where it came from.
#pragma once

#include <gannet/config.h>

#include <map>
#include <memory>
#include <string>

namespace gannet::config {

// Where a value stands. `origin` is a file's path, "code", "command line", "default", "auto".
struct Origin {
  std::string origin;
  int line = 0;    // 1-based; 0 when the origin is not a text
  int column = 0;
  // "ds_config.json:14:5", or "command line", for the head of an error.
  std::string to_string() const;
};

class Document {
 public:
  // Parse and check: syntax (comments and trailing commas are legal), duplicate keys, unknown keys, types, ranges.
  static std::shared_ptr<const Document> from_file(const std::string& path);
  static std::shared_ptr<const Document> from_text(const std::string& text, const std::string& name);
  static std::shared_ptr<const Document> from_dict(const Dict& dictionary, const std::string& origin);
  std::shared_ptr<const Document> merged(const Dict& dictionary, const std::string& origin) const;

  const Dict& root() const { return root_; }
  // `path` is a JSON pointer ("/optimizer/params/lr"). Falls back to the nearest ancestor that has a position.
  Origin origin_of(const std::string& path) const;

 private:
  Dict root_;
  std::map<std::string, Origin> origins_;  // by JSON pointer
};

}  // namespace gannet::config
