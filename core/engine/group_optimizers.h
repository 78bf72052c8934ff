// The plugin's object of each parameter group: made and checked before any of them is in use, at construction and when
// swap_optimizer() replaces them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "params/rank_context.h"
#include "params/store.h"

namespace gannet {

/// What a group's plugin is given, and where each of it stands.
struct GroupParams {
  Dict params;
  std::function<std::string(const std::string& member)> where;
};

/// An optimizer for each of `groups`, described, with its hyperparameters: [groups] of which nothing else is filled in. Throws
/// what makes the plugin unfit for these groups, ranges and ranks.
std::vector<Group> make_optimizers(const RankContext& context, const ParameterStore& store, const std::vector<Group>& groups,
                                   const plugin::Plugin& plugin, const std::function<GroupParams(size_t group)>& params_of);
/// The same of objects that `make` makes.
std::vector<Group> make_optimizers(const RankContext& context, const ParameterStore& store, const std::vector<Group>& groups,
                                   const std::function<std::unique_ptr<Optimizer>(size_t group)>& make);

/// `made` gives its optimizer and hyperparameters to the group.
void take_optimizer(Group& group, Group& made) noexcept;

/// "default: 12 tensors, 3100000 elements, lr 0.001, weight_decay 0.1" for each group, a line each.
std::string group_table(const std::vector<Group>& groups);

}  // namespace gannet
