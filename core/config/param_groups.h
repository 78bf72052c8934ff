// Parameter groups by name patterns: the config's optimizer.param_groups, or the same given in
// code.
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
  std::string name;                // as given, or else its patterns
  std::vector<std::string> match;  // patterns on parameters' names (base/glob.h)
  Dict overrides;                  // override the optimizer's params
};

/// The name of the group with the parameters that match no pattern; it comes first.
inline constexpr const char* kRestOfParameters = "default";

/// `where(path)` returns "ds_config.json:5:20: " for "/optimizer/param_groups/0/match". Throws
/// Error(kConfig) on a group without a pattern, on members of the wrong type and on two groups with
/// one name.
std::vector<ParamGroup> param_groups_of(const List& groups, const std::function<std::string(const std::string& path)>& where);

Dict with_overrides(Dict params, const Dict& overrides);

/// The position of a group's param, for plugin::parse_params of the group's params.
std::function<std::string(const std::string& member)> position_in_param_group(const Document& document, size_t group,
                                                                              const Dict& overrides);

}  // namespace gannet::config
