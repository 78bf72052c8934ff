// Will the run fit? From the engine's parameters and config to a plan (params/estimate.h), against what the machine has.
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cstdlib>

#include "base/format.h"
#include "base/machine_memory.h"
#include "control/environment.h"
#include "engine/construction.h"
#include "engine/impl.h"
#include "params/fit.h"
#include "tensor/dtype.h"

namespace gannet {

// Needs more than the machine has: said before anything is allocated, with what would fit.
void check_fit(EngineBase::Impl& impl) {
  if (!impl.settings().check_memory || impl.store.ranges().empty()) return;
  const auto tier = [](const config::OffloadTo& to) {
    return to.device == "nvme" ? zero::Tier::kNvme : to ? zero::Tier::kCpu : zero::Tier::kNone;
  };
  zero::Plan plan;
  plan.model.state_bytes = 0;
  uint64_t held_now = 0;
  for (const Range& range : impl.store.ranges()) {
    for (const auto& parameter : range.parameters) {
      plan.model.parameters += static_cast<uint64_t>(parameter.numel);
      plan.model.largest = std::max(plan.model.largest, static_cast<uint64_t>(parameter.numel));
      if (parameter.tensor.is_cpu() && !zero::is_watched(parameter.tensor.storage().unsafeGetStorageImpl()))
        held_now += parameter.tensor.nbytes();
    }
    plan.model.param_bytes = static_cast<uint32_t>(c10::elementSize(range.dtype));
    plan.model.grad_bytes = static_cast<uint32_t>(c10::elementSize(range.grad_dtype));
    plan.model.master_bytes = range.has_master_copy() ? static_cast<uint32_t>(c10::elementSize(range.master_dtype)) : 0;
    if (impl.settings().ema.decay) plan.model.average_bytes = static_cast<uint32_t>(c10::elementSize(range.master_dtype));
    uint32_t state_bytes = 0;
    if (const auto& optimizer = impl.groups[range.group].optimizer)
      for (const auto& state : optimizer->states())
        if (state.extent == GANNET_STATE_PER_ELEMENT)
          state_bytes += (static_cast<uint32_t>(c10::elementSize(
                              state.dtype == GANNET_DTYPE_NONE ? range.master_dtype : to_scalar_type(state.dtype))) +
                          (range.is_served(state) ? impl.comm->size() - 1 : 0)) /
                         (range.is_served(state) ? impl.comm->size() : 1);
    plan.model.state_bytes = std::max(plan.model.state_bytes, state_bytes);  // groups may have others
    if (const auto& optimizer = impl.groups[range.group].optimizer) {
      plan.model.keeps_masters |= optimizer->perturbs();
      plan.model.has_second_gradient |= optimizer->takes_second_gradients();
    }
  }
  const auto variables = control::variables_of_this_process();
  const auto here = variables.find("LOCAL_WORLD_SIZE");
  plan.ranks = impl.comm->size();
  plan.ranks_per_host = here == variables.end()
                            ? 1
                            : static_cast<uint32_t>(std::clamp(std::atoi(here->second.c_str()), 1, static_cast<int>(plan.ranks)));
  plan.device_is_host = impl.device.is_cpu();
  const auto& sizes = impl.settings().zero;
  plan.placement = {static_cast<int>(sizes.stage), tier(sizes.offload_optimizer), tier(sizes.offload_param)};
  plan.buffers.reduce_bucket_size = static_cast<uint64_t>(sizes.reduce_bucket_size);
  plan.buffers.prefetch_bucket_size = static_cast<uint64_t>(sizes.prefetch_bucket_size);
  plan.buffers.max_live_parameters = static_cast<uint64_t>(sizes.max_live_parameters);
  plan.buffers.sub_group_size = static_cast<uint64_t>(sizes.sub_group_size);
  plan.buffers.max_in_cpu = static_cast<uint64_t>(sizes.offload_param.max_in_cpu);
  plan.buffers.buffer_count = static_cast<uint64_t>(sizes.offload_optimizer.buffer_count);
  zero::Room room = zero::room_of(machine_memory());
  // The model as the program made it goes when its parameters are placed.
  if (room.host) *room.host += held_now * plan.ranks_per_host;
  if (room.process) *room.process += held_now;
  if (!plan.device_is_host)
    if (const auto info = impl.accelerator->device(static_cast<uint32_t>(impl.device.index())); info.free_bytes > 0)
      room.device = info.free_bytes;
  for (const config::OffloadTo* to : {static_cast<const config::OffloadTo*>(&sizes.offload_optimizer),
                                      static_cast<const config::OffloadTo*>(&sizes.offload_param)})
    if (const Value* folder = to->device == "nvme" ? to->params.find("nvme_path") : nullptr)
      room.nvme = free_bytes(folder->as_string());
  try {
    zero::fit(plan, room);
  } catch (const Error& error) {
    throw Error(error.code(), error.message(),
                formatted("{}{}\"gannet\": {{\"check_memory\": false}} tries anyway", error.next_step(),
                          error.next_step().empty() ? "" : "; "));
  }
}

}  // namespace gannet
