// Compares what a run needs with what the machine has, and finds the smallest change that makes the
// run fit.
//
//   FreeSpace room = room_of(machine_memory());
//   room.device = accelerator.device(0).free_bytes;
//   fit(plan, room);     // Error(kOutOfMemory): "... needs 20.8 GiB of device memory, 16.0 GiB are free: 4.8 GiB lack"
//                         // next step: "stage 2 fits: 11.2 GiB of 16.0 GiB of device memory; set ..."
//
// A change costs more the farther it moves data from the device: first a higher stage, then offload
// to host memory, then to NVMe, and last more ranks (which someone must pay for), on additional
// hosts like this one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/machine_memory.h"
#include "estimate/plan.h"

namespace gannet::zero {

// Free bytes. Those that are unknown or unbounded are nullopt, and are not checked. Offload to NVMe
// is proposed only if its free space is known, or if the plan already uses NVMe.
struct FreeSpace {
  std::optional<uint64_t> device;      // of one rank's device
  std::optional<uint64_t> host;        // shared by the ranks of the host
  std::optional<uint64_t> process;     // the part of `host` that one rank may use
  std::optional<uint64_t> nvme;        // shared by the ranks of the host
  std::optional<uint64_t> checkpoint;  // in the checkpoint folder, shared by all ranks
};
FreeSpace room_of(const MachineMemory& memory);  // fills in `host` and `process`

struct MemoryLack {
  std::string kind;  // "device memory"
  uint64_t needed = 0, free = 0;
  std::string to_string() const;  // "20.8 GiB of device memory are needed, 16.0 GiB are free: 4.8 GiB lack"
};
std::vector<MemoryLack> lacks(const Plan& plan, const FreeSpace& room);

bool fits(const Plan& plan, const FreeSpace& room);  // ignores disk space for checkpoints

// Returns all placements by step time as measured by DeepSpeed users, fastest first: stage 0, 1,
// 2, then 2 with offload to host memory, 3, 3 with offload to host memory; then all that use NVMe.
std::vector<Placement> fastest_first();

// Returns the cheapest plan that fits. It changes the placement or, if no placement fits, also the
// number of ranks. Returns nullopt if the model does not fit on any number of ranks. Disk space for
// checkpoints is ignored: no placement makes them smaller.
std::optional<Plan> smallest_change(const Plan& plan, const FreeSpace& room);

// Throws Error(kOutOfMemory) if the plan does not fit. The error states how much of each kind of
// memory is missing, and what would fit.
void fit(const Plan& plan, const FreeSpace& room);

}  // namespace gannet::zero
