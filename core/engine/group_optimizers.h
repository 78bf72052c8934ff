// Creates each parameter group's optimizer from its plugin. At construction and when
// swap_optimizer() replaces them, all optimizers are created and checked before any is used.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "params/rank_context.h"
#include "params/store.h"

namespace gannet {

/// The params of a group's plugin, and a function that names where each is set.
struct GroupParams {
  Dict params;
  std::function<std::string(const std::string& member)> where;
};

/// Creates an optimizer for each of `groups`, describes the group to it, and reads its
/// hyperparameters. In the result, [groups], only these and the names are filled in. Throws if the
/// plugin cannot be used with these groups, ranges and ranks.
std::vector<Group> make_optimizers(const RankContext& context, const ParameterStore& store, const std::vector<Group>& groups,
                                   const plugin::Plugin& plugin, const std::function<GroupParams(size_t group)>& params_of);
/// The same, for optimizers that `make` creates.
std::vector<Group> make_optimizers(const RankContext& context, const ParameterStore& store, const std::vector<Group>& groups,
                                   const std::function<std::unique_ptr<Optimizer>(size_t group)>& make);

/// Swaps the optimizer and hyperparameters of `made` into the group.
void take_optimizer(Group& group, Group& made) noexcept;

/// Returns one line for each group: "default: 12 tensors, 3100000 elements, lr 0.001, weight_decay
/// 0.1".
std::string group_table(const std::vector<Group>& groups);

}  // namespace gannet
