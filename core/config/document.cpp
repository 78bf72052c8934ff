#include "config/document.h"

#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "config/mistakes.h"
#include "config/normalize.h"
#include "config/parse.h"

namespace gannet::config {
namespace {

void name_origins(const Value& value, const std::string& path, const std::string& origin, std::map<std::string, Origin>& origins,
                  int depth = 0) {
  if (depth > kMaxDepth) throw Error(ErrorCode::kConfig, formatted("{}: nested deeper than {} levels", origin, kMaxDepth));
  origins[path] = {origin, 0, 0};
  if (!value.is_dict()) return;
  for (const auto& [key, member] : value.as_dict().entries())
    name_origins(member, pointer(path, key), origin, origins, depth + 1);
}

void merge(Dict& base, Dict& overlay, const std::string& path, Tree& into, std::map<std::string, Origin>& overlay_origins) {
  for (auto& [key, value] : overlay.entries()) {
    const std::string at = pointer(path, key);
    Value* old = base.find(key);
    if (old && old->is_dict() && value.is_dict()) {
      merge(old->as_dict(), value.as_dict(), at, into, overlay_origins);
      continue;
    }
    std::erase_if(into.origins,
                  [&](const auto& entry) { return entry.first == at || entry.first.starts_with(formatted("{}/", at)); });
    for (const auto& [where, origin] : overlay_origins)
      if (where == at || where.starts_with(formatted("{}/", at))) into.origins[where] = origin;
    base[key] = std::move(value);
  }
}

Tree tree_of(const Dict& dictionary, const std::string& origin) {
  Tree tree{dictionary, {}, {}};
  name_origins(Value(dictionary), "", origin, tree.origins);
  return tree;
}

}  // namespace

std::string Origin::to_string() const { return line == 0 ? origin : formatted("{}:{}:{}", origin, line, column); }

std::string dotted(std::string_view path) {
  std::string result(path.starts_with('/') ? path.substr(1) : path);
  std::replace(result.begin(), result.end(), '/', '.');
  return result;
}

std::string pointer(const std::string& parent, const std::string& key) {
  std::string result = formatted("{}/", parent);
  for (const char letter : key) {
    if (letter == '~')
      result += "~0";
    else if (letter == '/')
      result += "~1";
    else
      result += letter;
  }
  return result;
}

bool is_note(const std::string& key) { return key.starts_with("_") || key.starts_with("x-"); }

Origin Tree::origin_of(const std::string& path) const {
  for (std::string at = path;; at.erase(at.rfind('/'))) {
    const auto found = origins.find(at);
    if (found != origins.end()) return found->second;
    if (at.find('/') == std::string::npos) return {};
  }
}

std::shared_ptr<const Document> Document::from_file(const std::string& path, OwnSectionsPtr own) {
  return std::make_shared<const Document>(normalize(parse_file(path), nullptr, own.get()), own);
}

std::shared_ptr<const Document> read_file(const std::string& path, std::vector<Error>& mistakes) {
  return std::make_shared<const Document>(normalize(parse_file(path), &mistakes));
}

std::shared_ptr<const Document> Document::from_text(const std::string& text, const std::string& name, OwnSectionsPtr own) {
  return std::make_shared<const Document>(normalize(parse_text(text, name), nullptr, own.get()), own);
}

std::shared_ptr<const Document> Document::from_dict(const Dict& dictionary, const std::string& origin, OwnSectionsPtr own) {
  return std::make_shared<const Document>(normalize(tree_of(dictionary, origin), nullptr, own.get()), own);
}

std::shared_ptr<const Document> Document::merged(const Dict& dictionary, const std::string& origin) const {
  Tree overlay = normalize(tree_of(dictionary, origin), nullptr, own_.get());
  Tree result = tree_;
  merge(result.root, overlay.root, "", result, overlay.origins);
  result.notices.insert(result.notices.end(), overlay.notices.begin(), overlay.notices.end());
  return std::make_shared<const Document>(std::move(result), own_);
}

const Value* Document::find(const std::string& path) const {
  const Dict* dictionary = &tree_.root;
  const Value* value = nullptr;
  for (const std::string& key : split(path, '/')) {
    if (value) {
      if (!value->is_dict()) return nullptr;
      dictionary = &value->as_dict();
    }
    value = dictionary->find(key);
    if (!value) return nullptr;
  }
  return value;
}

}  // namespace gannet::config
