#include "params/rank_context.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gannet/distributed.h>

namespace gannet {

RankContext::RankContext() = default;
RankContext::~RankContext() = default;

ReductionGroup RankContext::ranks_of(const DeclaredSplit* split) const {
  if (split && split->is_along_expert && expert_comm) return {expert_comm.get(), expert_data_group};
  return {comm.get(), host_group};
}

DeviceComm::Memory RankContext::comm_memory() const {
  return !computes_on_host() && serves_host_memory(device_comm->plugin()) ? DeviceComm::kStaged : DeviceComm::kOwn;
}

void* RankContext::current_stream() const {
  if (!accelerator->has(GANNET_ACCELERATOR_STREAMS)) return nullptr;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  return accelerator->native_stream(static_cast<uint32_t>(device.index()), stream.id());
}

}  // namespace gannet
