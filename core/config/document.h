// A config as written: the merged tree, and the origin of every value.
#pragma once

#include <gannet/config.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::config {

class OwnSections;

// Where a value comes from. `origin` is, for example, a file's path, "config text", "code",
// "command line", "default" or "auto: hidden size 768".
struct Origin {
  std::string origin;
  int line = 0;  // 1-based; 0 if the origin is not text
  int column = 0;
  // Returns "ds_config.json:14:5" or "command line", for use as the prefix of an error.
  std::string to_string() const;
};

// The JSON pointer (RFC 6901) of a member: "/optimizer/params/lr".
std::string pointer(const std::string& parent, const std::string& key);

// The name of a member in messages, which --set takes: "optimizer.params.lr" of "/optimizer/params/lr" or "optimizer/params/lr".
std::string dotted(std::string_view path);

// A dictionary and the origins of its values; the origins are keyed by JSON pointer, "" being the
// root.
struct Tree {
  Dict root;
  std::map<std::string, Origin> origins;
  std::vector<std::string> notices;  // one for each deprecated key that was rewritten

  Origin origin_of(const std::string& path) const;
};

// The deepest nesting that a config may have, since walks over it recurse.
constexpr int kMaxDepth = 64;

// Keys that hold a user's notes: "_comment", "x-owner".
bool is_note(const std::string& key);

class Document {
 public:
  // These functions parse a config and check its syntax (comments and trailing commas are legal),
  // duplicate keys, unknown keys, types and ranges. `own`: the sections that the program adds to
  // the key table, or null. Merged documents keep them.
  using OwnSectionsPtr = std::shared_ptr<const OwnSections>;
  static std::shared_ptr<const Document> from_file(const std::string& path, OwnSectionsPtr own = {});
  static std::shared_ptr<const Document> from_text(const std::string& text, const std::string& name, OwnSectionsPtr own = {});
  static std::shared_ptr<const Document> from_dict(const Dict& dictionary, const std::string& origin, OwnSectionsPtr own = {});
  std::shared_ptr<const Document> merged(const Dict& dictionary, const std::string& origin) const;

  // All keys have their current names (no alias, no deprecated name). Each value has its key's
  // type, or is "auto".
  const Dict& root() const { return tree_.root; }
  // `path` is a JSON pointer ("/optimizer/params/lr"). If the value itself has no origin, returns
  // that of its nearest ancestor that has one.
  Origin origin_of(const std::string& path) const { return tree_.origin_of(path); }
  // The value at a JSON pointer, or null.
  const Value* find(const std::string& path) const;
  const std::vector<std::string>& notices() const { return tree_.notices; }

  const OwnSections* gannet_sections() const { return own_.get(); }

  explicit Document(Tree normalized, OwnSectionsPtr own = {}) : tree_(std::move(normalized)), own_(std::move(own)) {}

 private:
  Tree tree_;
  OwnSectionsPtr own_;
};

}  // namespace gannet::config
