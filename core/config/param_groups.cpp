#include "config/param_groups.h"

#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "config/document.h"

namespace gannet::config {
namespace {

constexpr const char* kNextStep =
    "a group is {\"match\": PATTERN or [PATTERNS], params of the optimizer}, \"name\" is optional; `*` matches any characters, "
    "`?` one";

std::vector<std::string> patterns_of(const Value* match, const std::string& at) {
  const auto refuse = [&](const std::string& found) {
    throw Error(ErrorCode::kConfig,
                formatted("{} must be a pattern on parameters' names, or a list of them, found {}", at, found), kNextStep);
  };
  if (!match->is_string() && !match->is_list()) refuse(match->is_dict() ? "an object" : match->to_json());
  const List list = match->is_list() ? match->as_list() : List{*match};
  if (list.empty()) refuse("an empty list");
  std::vector<std::string> patterns;
  for (const Value& pattern : list) {
    if (!pattern.is_string() || pattern.as_string().empty()) refuse(match->to_json());
    patterns.push_back(pattern.as_string());
  }
  return patterns;
}

}  // namespace

std::vector<ParamGroup> param_groups_of(const List& groups, const std::function<std::string(const std::string& path)>& where) {
  std::vector<ParamGroup> all;
  for (size_t g = 0; g < groups.size(); ++g) {
    const Dict& given = groups[g].as_dict();
    const std::string path = formatted("/optimizer/param_groups/{}", g);
    const auto at = [&](const std::string& member) {
      const std::string whole = pointer(path, member);
      return where(whole) + dotted(whole);
    };
    const Value* match = given.find("match");
    if (!match)
      throw Error(ErrorCode::kConfig,
                  formatted("{}{} has no \"match\"", where(given.empty() ? path : pointer(path, given.entries().front().first)),
                            dotted(path)),
                  kNextStep);
    ParamGroup& group = all.emplace_back();
    group.match = patterns_of(match, at("match"));
    group.name = join(group.match, ", ");
    if (const Value* name = given.find("name")) {
      if (!name->is_string() || name->as_string().empty())
        throw Error(ErrorCode::kConfig, formatted("{} must be a name, found {}", at("name"), name->to_json()), kNextStep);
      group.name = name->as_string();
    }
    const bool is_taken = group.name == kRestOfParameters ||
                          std::any_of(all.begin(), all.end() - 1, [&](const auto& other) { return other.name == group.name; });
    if (is_taken)
      throw Error(
          ErrorCode::kConfig,
          formatted("{}: {} '{}'", at(given.find("name") ? "name" : "match"),
                    group.name == kRestOfParameters ? "the group of the rest is called" : "another parameter group is called",
                    group.name),
          "give each group a \"name\" of its own");
    if (given.find("max_grad_norm"))
      throw Error(ErrorCode::kConfig, formatted("{}: clipping is the engine's work, not the optimizer's", at("max_grad_norm")),
                  "write gradient_clipping at the top level");
    for (const auto& [key, value] : given.entries())
      if (key != "match" && key != "name") group.overrides[key] = value;
  }
  return all;
}

Dict with_overrides(Dict params, const Dict& overrides) {
  for (const auto& [key, value] : overrides.entries()) params[key] = value;
  return params;
}

std::function<std::string(const std::string& member)> position_in_param_group(const Document& document, size_t group,
                                                                              const Dict& overrides) {
  return [&document, &overrides, group](const std::string& member) {
    const std::string path = overrides.find(member) ? pointer(formatted("/optimizer/param_groups/{}", group), member)
                             : member.empty()       ? std::string("/optimizer/params")
                                                    : pointer("/optimizer/params", member);
    return document.origin_of(path).to_string();
  };
}

}  // namespace gannet::config
