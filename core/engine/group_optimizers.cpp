#include "engine/group_optimizers.h"

#include <gannet/log.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "engine/optimizer_reduction.h"
#include "plugin/inside.h"
#include "update/group_states.h"

namespace gannet {
namespace {

void refuse_unfit(const RankContext& context, const ParameterStore& store, const Optimizer& optimizer, size_t group) {
  const std::string name = optimizer.plugin().name();
  check_optimizer_reduction(context, store, optimizer);
  if (context.settings().ema.decay && optimizer.has_evaluation_weights())
    throw Error(
        ErrorCode::kUnsupported,
        formatted("gannet.ema keeps a moving average of the parameters to evaluate with, and optimizer '{}' has weights of "
                  "its own for that",
                  name),
        "leave gannet.ema out, or name another optimizer");
  const auto& sums = optimizer.sums();
  if (context.mesh->has_pipe_stages() &&
      std::any_of(sums.begin(), sums.end(), [](const auto& sum) { return sum.scope != GANNET_SUM_OF_TENSOR; }))
    throw Error(ErrorCode::kUnsupported,
                formatted("optimizer '{}' wants sums of the whole model, of which each stage of the pipeline has a part", name),
                "choose an optimizer that works tensor by tensor, or train without pipeline stages");
  if (!optimizer.needs_whole_tensors() && !optimizer.needs_lines()) return;
  for (const auto& range : store.ranges())
    if (range.group == group && range.is_split())
      throw Error(
          ErrorCode::kUnsupported,
          formatted("optimizer '{}' {}, and each rank has a part of '{}'", name,
                    optimizer.needs_whole_tensors() ? "needs whole tensors" : "works by rows, columns or blocks of tensors",
                    range.parameters[0].name),
          "choose an optimizer that works element by element, or leave the parameter whole");
}

// Sums over the model cover all groups, so all groups must declare the same sums.
void check_sums(const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    const auto& sums = group.optimizer->sums();
    const bool has_model =
        std::any_of(sums.begin(), sums.end(), [](const auto& sum) { return sum.scope == GANNET_SUM_OF_MODEL; });
    for (const Group& other : groups)
      if (has_model && other.optimizer->sums() != sums)
        throw plugin::fault(
            group.optimizer->plugin(),
            formatted("optimizer '{}' wants sums of the model, and other ones for the parameter group {} than for {}",
                      group.optimizer->plugin().name(), other.name, group.name));
  }
}

// Implements "debug_plugins", for arrays in host memory. The engine cannot copy a device's arrays
// at will.
void watch(const RankContext& context, Optimizer& optimizer, bool is_first) {
  plugin::tell_fatal_signals();
  if (context.computes_on_host() || context.updates_on_host()) return optimizer.watch();
  if (is_first)
    log_warning(
        formatted("gannet.debug_plugins watches arrays in host memory; those of optimizer '{}' are on {}, so that it is "
                  "not watched; offload_optimizer to \"cpu\" brings them to the host",
                  optimizer.plugin().name(), context.device.str()));
}

}  // namespace

std::vector<Group> make_optimizers(const RankContext& context, const ParameterStore& store, const std::vector<Group>& groups,
                                   const plugin::Plugin& plugin, const std::function<GroupParams(size_t group)>& params_of) {
  return make_optimizers(context, store, groups, [&](size_t g) {
    const GroupParams given = params_of(g);
    return std::make_unique<Optimizer>(plugin, plugin::parse_params(plugin, given.params, given.where), context.host);
  });
}

std::vector<Group> make_optimizers(const RankContext& context, const ParameterStore& store, const std::vector<Group>& groups,
                                   const std::function<std::unique_ptr<Optimizer>(size_t group)>& make) {
  std::vector<Group> made(groups.size());
  for (size_t g = 0; g < made.size(); ++g) {
    Group& group = made[g];
    group.name = groups[g].name;
    group.optimizer = make(g);
    if (context.settings().debug_plugins) watch(context, *group.optimizer, g == 0);
    group.hyper_names = group.optimizer->hyper_names();
    group.hyper_roles = group.optimizer->hyper_roles();
    group.hyper = group.optimizer->hyper_values();
    for (size_t i = 0; i < group.hyper.size(); ++i)
      if (group.hyper_roles[i] != GANNET_ROLE_NONE) group.base[group.hyper_roles[i]] = group.hyper[i];
    describe_group(made, g, context, store);
    refuse_unfit(context, store, *group.optimizer, g);
  }
  check_sums(made);
  return made;
}

void take_optimizer(Group& group, Group& made) noexcept {
  std::swap(group.optimizer, made.optimizer);
  std::swap(group.hyper_names, made.hyper_names);
  std::swap(group.hyper_roles, made.hyper_roles);
  std::swap(group.hyper, made.hyper);
  std::swap(group.base, made.base);
  std::swap(group.group_states, made.group_states);
  std::swap(group.squares, made.squares);
}

std::string group_table(const std::vector<Group>& groups) {
  std::string table;
  for (const Group& group : groups) {
    int64_t numel = 0;
    for (const at::Tensor& parameter : group.parameters) numel += parameter.numel();
    table += formatted("\n  {}: {}{}, {} elements", group.name, group.parameters.size(),
                       group.parameters.size() == 1 ? " tensor" : " tensors", numel);
    for (size_t h = 0; h < group.hyper.size(); ++h)
      table += formatted(", {} {}", group.hyper_names[h], short_number(group.hyper[h]));
  }
  return table;
}

}  // namespace gannet
