// Checks whether the run fits: makes a plan (estimate/plan.h) from the engine's parameters and
// config, and compares it with the machine's free memory and disk space.
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cstdlib>

#include "base/format.h"
#include "base/machine_memory.h"
#include "control/environment.h"
#include "engine/construction.h"
#include "estimate/fit.h"
#include "tensor/dtype.h"

namespace gannet {
namespace {

// Returns the average number of state bytes that a rank keeps per element of a range. Only this
// rank's share of a SERVED state counts.
uint32_t state_bytes_of(const Range& range, const Optimizer& optimizer, uint32_t ranks) {
  uint32_t bytes = 0;
  for (const auto& state : optimizer.states()) {
    if (state.extent != GANNET_STATE_PER_ELEMENT) continue;
    const at::ScalarType dtype = state.dtype == GANNET_DTYPE_NONE ? range.master_dtype : to_scalar_type(state.dtype);
    const auto size = static_cast<uint32_t>(c10::elementSize(dtype));
    bytes += range.is_served(state) ? (size + ranks - 1) / ranks : size;
  }
  return bytes;
}

zero::ModelSize model_of(const RankContext& context, const ParameterStore& store, const std::vector<Group>& groups) {
  zero::ModelSize model;
  model.state_bytes = 0;
  for (const Range& range : store.ranges()) {
    for (const auto& parameter : range.parameters) {
      model.parameters += static_cast<uint64_t>(parameter.numel);
      model.largest = std::max(model.largest, static_cast<uint64_t>(parameter.numel));
    }
    model.param_bytes = static_cast<uint32_t>(c10::elementSize(range.dtype));
    model.grad_bytes = static_cast<uint32_t>(c10::elementSize(range.grad_dtype));
    model.master_bytes = range.has_master_copy() ? static_cast<uint32_t>(c10::elementSize(range.master_dtype)) : 0;
    if (context.settings().ema.decay) model.average_bytes = static_cast<uint32_t>(c10::elementSize(range.master_dtype));
    const auto& optimizer = groups[range.group].optimizer;
    if (!optimizer) continue;
    model.state_bytes =
        std::max(model.state_bytes, state_bytes_of(range, *optimizer, context.comm->size()));  // groups may differ
    model.keeps_masters |= optimizer->perturbs();
    model.has_second_gradient |= optimizer->takes_second_gradients();
  }
  return model;
}

// Returns the bytes of the parameters as the program created them, in host memory.
uint64_t bytes_held_now(const ParameterStore& store) {
  uint64_t bytes = 0;
  for (const Range& range : store.ranges())
    for (const auto& parameter : range.parameters)
      if (parameter.tensor.is_cpu() && !zero::is_watched(parameter.tensor.storage().unsafeGetStorageImpl()))
        bytes += parameter.tensor.nbytes();
  return bytes;
}

uint32_t ranks_per_host(uint32_t ranks) {
  const auto variables = control::variables_of_this_process();
  const auto here = variables.find("LOCAL_WORLD_SIZE");
  if (here == variables.end()) return 1;
  return static_cast<uint32_t>(std::clamp(std::atoi(here->second.c_str()), 1, static_cast<int>(ranks)));
}

zero::Plan plan_of(const RankContext& context, const ParameterStore& store, const std::vector<Group>& groups) {
  zero::Plan plan;
  plan.model = model_of(context, store, groups);
  plan.ranks = context.comm->size();
  plan.ranks_per_host = ranks_per_host(context.world_group->size());
  plan.device_is_host = context.computes_on_host();
  const auto& sizes = context.settings().zero;
  plan.placement = {static_cast<int>(sizes.stage), zero::tier_of(sizes.offload_optimizer), zero::tier_of(sizes.offload_param)};
  plan.buffers.reduce_bucket_size = static_cast<uint64_t>(sizes.reduce_bucket_size);
  plan.buffers.prefetch_bucket_size = static_cast<uint64_t>(sizes.prefetch_bucket_size);
  plan.buffers.max_live_parameters = static_cast<uint64_t>(sizes.max_live_parameters);
  plan.buffers.sub_group_size = static_cast<uint64_t>(sizes.sub_group_size);
  plan.buffers.max_in_cpu = static_cast<uint64_t>(sizes.offload_param.max_in_cpu);
  plan.buffers.buffer_count = static_cast<uint64_t>(sizes.offload_optimizer.buffer_count);
  return plan;
}

zero::FreeSpace room_for(const RankContext& context, const ParameterStore& store, const zero::Plan& plan) {
  zero::FreeSpace room = zero::room_of(machine_memory());
  // The model as the program created it is freed when its parameters are placed.
  const uint64_t held_now = bytes_held_now(store);
  if (room.host) *room.host += held_now * plan.ranks_per_host;
  if (room.process) *room.process += held_now;
  if (!plan.device_is_host)
    if (const auto info = context.accelerator->device(static_cast<uint32_t>(context.device.index())); info.free_bytes > 0)
      room.device = info.free_bytes;
  const auto& sizes = context.settings().zero;
  for (const config::OffloadTarget* to : {static_cast<const config::OffloadTarget*>(&sizes.offload_optimizer),
                                          static_cast<const config::OffloadTarget*>(&sizes.offload_param)})
    if (const Value* folder = to->device == "nvme" ? to->params.find("nvme_path") : nullptr)
      room.nvme = free_bytes(folder->as_string());
  return room;
}

}  // namespace

// If the run needs more than the machine has, throws before anything is allocated; the error names
// what would fit.
void check_fit(const RankContext& context, const ParameterStore& store, const std::vector<Group>& groups) {
  if (!context.settings().check_memory || store.ranges().empty()) return;
  const zero::Plan plan = plan_of(context, store, groups);
  const zero::FreeSpace room = room_for(context, store, plan);
  try {
    zero::fit(plan, room);
  } catch (const Error& error) {
    throw Error(error.code(), error.message(),
                formatted("{}{}\"gannet\": {{\"check_memory\": false}} tries anyway", error.next_step(),
                          error.next_step().empty() ? "" : "; "));
  }
}

}  // namespace gannet
