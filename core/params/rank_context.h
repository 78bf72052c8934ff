// Everything that a rank trains with: its plugins, device, groups of ranks, config, memory tiers
// and clock. The engine opens and owns it (engine/open.h). The store, the reducer and the updater
// hold references and are destroyed before it.
//
// Everything here is set once, at construction, and only read afterwards, except the batch sizes in
// `resolved`, and `param_tier`, which the store resets if it holds nothing.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "config/precision.h"
#include "config/resolve.h"
#include "device/accelerator.h"
#include "device/device_comm.h"
#include "interfaces/host.h"
#include "interfaces/host_group.h"
#include "interfaces/offload.h"
#include "mesh/groups.h"
#include "observe/timers.h"
#include "params/reduction_group.h"
#include "plugin/plugin.h"
#include "tensor/splits.h"

namespace gannet {

class ProcessGroup;

struct RankContext {
  RankContext();
  ~RankContext();
  RankContext(const RankContext&) = delete;

  uint32_t engine_id = 0;        // number of the engine in this process
  uint32_t number_in_group = 0;  // its number among the engines of the same ranks; the same on every rank
  config::ResolvedConfig resolved;
  const config::Settings& settings() const { return resolved.settings; }

  // Order matters: plugin objects must be destroyed before the host table that they were made with.
  Host host;
  std::unique_ptr<plugin::Registry> registry;
  std::unique_ptr<Accelerator> accelerator;
  std::shared_ptr<ProcessGroup> process_group;
  std::shared_ptr<MeshGroups> mesh;                   // the mesh over process_group's ranks
  std::unique_ptr<DeviceComm> comm;                   // for tensors along the data axis
  Comm* device_comm = nullptr;                        // the Comm that `comm` and the other DeviceComms use
  HostGroup* host_group = nullptr;                    // for numbers and strings along the data axis
  HostGroup* tensor_group = nullptr;                  // the ranks along the tensor axis; null: one rank
  std::unique_ptr<DeviceComm> expert_comm;            // the ranks with the same experts; null: the mesh has no expert axis
  HostGroup* expert_data_group = nullptr;             // the same ranks; null likewise
  HostGroup* expert_group = nullptr;                  // the ranks along the expert axis, with the other experts; null likewise
  HostGroup* world_group = nullptr;                   // all ranks of the mesh, which agree, save and report together
  bool is_first() const { return mesh->is_first(); }  // the first rank prints for all
  // The ranks that must make the same calls with matching arguments. Pipeline stages have different
  // parameters.
  HostGroup& watched_group() const { return mesh->has_pipe_stages() ? *host_group : *world_group; }
  /// The ranks that hold the same part of a parameter as this one.
  ReductionGroup ranks_of(const DeclaredSplit* split) const;
  at::Device device{at::kCPU};

  std::unique_ptr<observe::Trace> trace;  // null: none
  Timers timers;                          // has a stable address

  std::shared_ptr<Offload> state_tier, param_tier;  // null: device memory
  bool param_tier_is_drive = false;
  bool memory_is_apart = false;  // the device's memory is separate from the host's

  /// True if device tensors are in host memory, and an operator has completed when its call
  /// returns.
  bool computes_on_host() const { return device.is_cpu(); }
  /// True if the host can read device memory (a loss, a sum) without waiting for the work that
  /// writes it.
  bool host_reads_device() const { return computes_on_host(); }
  /// The dtypes of the parameters and of autocast, and the loss scaling, as configured for this
  /// device.
  config::Precision precision() const { return config::precision_of(settings(), computes_on_host()); }
  uint32_t device_index() const { return device.has_index() ? static_cast<uint32_t>(device.index()) : 0; }
  bool updates_on_host() const { return memory_is_apart && state_tier; }
  at::Device update_device() const { return updates_on_host() ? at::Device(at::kCPU) : device; }
  DeviceComm::Memory comm_memory() const;  // whether device_comm can access device memory
  /// The native handle of the calling thread's current stream, for plugins; null on a device
  /// without streams. Work queued on it runs after the program's own work, which produces the
  /// gradients.
  void* current_stream() const;
};

}  // namespace gannet
