// What a rank trains with: its plugins, its device, its groups of ranks, the config, the tiers beside the device, and the clock.
// The engine opens it (engine/open.h) and owns it; the store, the reducer and the updater are given it and end before it does.
//
// Everything here is set once, at construction, and read from then on; the batch sizes in `resolved` alone may change.
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

  uint32_t engine_id = 0;  // of this process, counted
  config::Resolved resolved;
  const config::Settings& settings() const { return resolved.settings; }

  // Order matters: plugins' objects die before the host table they were made with.
  Host host;
  std::unique_ptr<plugin::Registry> registry;
  std::unique_ptr<Accelerator> accelerator;
  std::shared_ptr<ProcessGroup> process_group;
  std::shared_ptr<MeshGroups> mesh;                   // of process_group's ranks
  std::unique_ptr<DeviceComm> comm;                   // of the data axis: tensors
  Comm* device_comm = nullptr;                        // what `comm` and its like move tensors by
  HostGroup* host_group = nullptr;                    // of the data axis: numbers and texts
  HostGroup* tensor_group = nullptr;                  // of the tensor axis; null: it has one rank
  std::unique_ptr<DeviceComm> expert_comm;            // of the ranks with the same experts; null: the mesh has no axis expert
  HostGroup* expert_data_group = nullptr;             // the same ranks; null likewise
  HostGroup* expert_group = nullptr;                  // of the expert axis: those with the other ones; null likewise
  HostGroup* world_group = nullptr;                   // of all ranks of the mesh: they agree, save and report together
  bool is_first() const { return mesh->is_first(); }  // it prints for all
  // The ranks whose calls and facts must be the same: stages of a pipeline have parameters of their own.
  HostGroup& watched_group() const { return mesh->has_pipe_stages() ? *host_group : *world_group; }
  /// The ranks that hold what this one does of a parameter.
  ReductionGroup ranks_of(const DeclaredSplit* split) const;
  at::Device device{at::kCPU};

  std::unique_ptr<observe::Trace> trace;  // null: none
  Timers timers;                          // keeps its address

  std::shared_ptr<Offload> state_tier, param_tier;  // null: in the device's memory
  bool param_tier_is_drive = false;
  bool memory_is_apart = false;  // the device's from the host's

  /// Tensors of the device are in host memory, and what computes them has ended when the call returns.
  bool computes_on_host() const { return device.is_cpu(); }
  /// Device memory is read without waiting for what writes it: a loss, a sum.
  bool host_reads_device() const { return computes_on_host(); }
  /// Of parameters, of the loss and of autocast, as the config has them on this device.
  config::Precision precision() const { return config::precision_of(settings(), computes_on_host()); }
  uint32_t device_index() const { return device.has_index() ? static_cast<uint32_t>(device.index()) : 0; }
  bool updates_on_host() const { return memory_is_apart && state_tier; }
  at::Device update_device() const { return updates_on_host() ? at::Device(at::kCPU) : device; }
  DeviceComm::Memory comm_memory() const;  // whether device_comm reaches the device's memory
  /// The native handle of the calling thread's current stream, for plugins; null on a device without streams. Work goes behind
  /// what the program has queued there: its gradients came from there.
  void* current_stream() const;
};

}  // namespace gannet
