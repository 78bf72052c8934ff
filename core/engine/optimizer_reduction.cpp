#include "engine/optimizer_reduction.h"

#include <algorithm>

#include "base/format.h"
#include "engine/checkpoint/rank_states.h"

namespace gannet {
namespace {

[[noreturn]] void refuse(const Optimizer& optimizer, const std::string& why, const std::string& next_step) {
  throw Error(ErrorCode::kUnsupported,
              formatted("optimizer '{}' averages gradients itself, and {}", optimizer.plugin().name(), why), next_step);
}

const Optimizer* owner_of(const EngineBase::Impl& impl, size_t group) {
  const auto& optimizer = impl.groups[group].optimizer;
  return optimizer && optimizer->owns_grad_reduction() ? optimizer.get() : nullptr;
}

}  // namespace

void check_optimizer_reduction(const RankContext& context, const ParameterStore& store, const Optimizer& optimizer) {
  if (!optimizer.owns_grad_reduction()) return;
  if (const int64_t stage = context.settings().zero.stage; stage > 0)
    refuse(optimizer, formatted("ZeRO stage {} shards what each of its ranks needs whole", stage),
           "set zero_optimization.stage to 0, or choose another optimizer");
  if (context.state_tier || context.param_tier || context.updates_on_host())
    refuse(optimizer, "offloaded states are updated a page at a time, where it needs whole buckets",
           "leave offload_optimizer and offload_param out of the config, or choose another optimizer");
  for (const Range& range : store.ranges())
    if (range.is_of_experts() || range.gradient_ratio != 1)
      refuse(optimizer, formatted("expert parameter '{}' is averaged over other ranks than the rest", range.parameters[0].name),
             "choose another optimizer");
  if (context.mesh->model())
    refuse(optimizer, "the mesh has ranks along an axis pipe or tensor, whose parts of the norm it does not see",
           "train only along the axis data, or choose another optimizer");
}

void refuse_joining(const EngineBase::Impl& impl, size_t group, const std::string& parameter) {
  if (const Optimizer* optimizer = owner_of(impl, group))
    refuse(*optimizer,
           formatted("its states are those of whole buckets from the first update on: parameter '{}' cannot join now", parameter),
           "let it require a gradient before initialize, or choose another optimizer");
}

void refuse_frozen(const EngineBase::Impl& impl) {
  for (const Range& range : impl.store.ranges()) {
    const Optimizer* const optimizer = owner_of(impl, range.group);
    for (size_t p = 0; optimizer && p < range.parameters.size(); ++p)
      if (is_skipped(range, p, *impl.reducer))
        refuse(*optimizer,
               formatted("it updates whole buckets: parameter '{}', which was frozen after initialize, cannot be left out",
                         range.parameters[p].name),
               "freeze it before initialize, give its group a learning rate of 0, or choose another optimizer");
  }
}

void refuse_write(const EngineBase::Impl& impl, const char* call, size_t group, const std::string& parameter) {
  if (!ranks_differ(impl, group)) return;
  throw Error(ErrorCode::kOrder,
              formatted("{} gives parameter '{}' a value after a local step of optimizer '{}', when every rank has another one",
                        call, parameter, impl.groups[group].optimizer->plugin().name()),
              "write it after a step that averages: while engine->parameters_differ() is false");
}

void refuse_writes_after_local_steps(EngineBase::Impl& impl) {
  if (impl.updater.evaluation().are_in_use()) return;
  for (size_t g = 0; g < impl.groups.size(); ++g) {
    if (!ranks_differ(impl, g)) continue;
    const std::string name = impl.module_audit->written(g);
    if (name.empty()) continue;
    const std::string text = formatted(
        "parameter '{}' was written in the module after a local step of optimizer '{}', when every rank has another one", name,
        impl.groups[g].optimizer->plugin().name());
    impl.progress.tear(text);
    throw Error(ErrorCode::kOrder, text,
                "load a checkpoint, and write after a step that averages: while engine->parameters_differ() is false");
  }
}

void plan_reduction(EngineBase::Impl& impl) {
  for (size_t g = 0; g < impl.groups.size(); ++g) {
    Group& group = impl.groups[g];
    const auto step = static_cast<uint64_t>(impl.progress.applied_steps - group.lag) + 1;
    const Optimizer* const owner = impl.comm->size() > 1 ? owner_of(impl, g) : nullptr;
    group.has_unreduced_gradients = owner && owner->reduces_gradients(step);
    if (owner && !group.has_unreduced_gradients && ranks_differ(impl, g))
      throw plugin::fault(
          owner->plugin(),
          formatted("optimizer '{}' leaves it to the engine to average the gradients of update {}, after a local step: "
                    "those of parameters that differ between ranks have no common mean",
                    owner->plugin().name(), step));
    for (Range& range : impl.store.ranges())
      if (range.group == g) range.has_unreduced_gradients = group.has_unreduced_gradients;
  }
}

HostGroup* ranks_with_unreduced_gradients(const EngineBase::Impl& impl) {
  const bool has_some =
      std::any_of(impl.groups.begin(), impl.groups.end(), [](const Group& group) { return group.has_unreduced_gradients; });
  return has_some ? impl.host_group : nullptr;
}

}  // namespace gannet
