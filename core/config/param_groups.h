// Parameter groups by patterns on names: the config's optimizer.param_groups, or the same given in code.
//
//   const auto groups = param_groups_of(settings.optimizer.param_groups, [&](const std::string& path) { return where(path); });
//   groups[0].match;        // {"*.bias"}
//   groups[0].overrides;    // {"weight_decay": 0}
//   with_overrides(settings.optimizer.params, groups[0].overrides);   // what the group's plugin is given
#pragma once

#include <gannet/value.h>

#include <functional>
#include <string>
#include <vector>

#include "config/document.h"

namespace gannet::config {

struct ParamGroup {
  std::string name;                // as given, else its patterns
  std::vector<std::string> match;  // patterns on parameters' names (base/glob.h)
  Dict overrides;                  // of the optimizer's params
};

/// The name of the group that has the parameters which no pattern matches; it comes first.
inline constexpr const char* kRestOfParameters = "default";

/// `where(path)`: "ds_config.json:5:20: " of "/optimizer/param_groups/0/match". Error(kConfig) on a group without a pattern, on
/// members of the wrong type and on two groups of one name.
std::vector<ParamGroup> param_groups_of(const List& groups, const std::function<std::string(const std::string& path)>& where);

Dict with_overrides(Dict params, const Dict& overrides);

/// Where a param of a group stands: for plugin::parse_params of the group's params.
std::function<std::string(const std::string& member)> position_in_param_group(const Document& document, size_t group,
                                                                              const Dict& overrides);

}  // namespace gannet::config
