// Parameter groups defined by name patterns, from the config's optimizer.param_groups or from code.
//
//   const auto groups = param_groups_of(settings.optimizer.param_groups, [&](const std::string& path) { return where(path); });
//   groups[0].match;        // {"*.bias"}
//   groups[0].overrides;    // {"weight_decay": 0}
//   with_overrides(settings.optimizer.params, groups[0].overrides);   // params for the plugin
#pragma once

#include <gannet/value.h>

#include <functional>
#include <string>
#include <vector>

#include "config/document.h"

namespace gannet::config {

struct ParamGroup {
  std::string name;                // the given name, or else the group's patterns
  std::vector<std::string> match;  // patterns on parameters' names (base/glob.h)
  Dict overrides;                  // the values that replace the optimizer's params in this group
};

/// The name of the group for parameters that match no pattern. This group comes first.
inline constexpr const char* kRestOfParameters = "default";

/// `where(path)` returns "ds_config.json:5:20: " for "/optimizer/param_groups/0/match". Throws
/// Error(kConfig) on a group without a pattern, on members of the wrong type, on two groups with
/// the same name, on the name "default" and on max_grad_norm.
std::vector<ParamGroup> param_groups_of(const List& groups, const std::function<std::string(const std::string& path)>& where);

Dict with_overrides(Dict params, const Dict& overrides);

/// Returns the positions of a group's params, for plugin::parse_params. `document` and `overrides` must outlive it.
std::function<std::string(const std::string& member)> position_in_param_group(const Document& document, size_t group,
                                                                              const Dict& overrides);

}  // namespace gannet::config
