// Divides the cores of a machine among its ranks. LibTorch gives every process as many threads as the
// machine has cores, so ranks whose launcher sets no number (srun, mpirun) slow each other down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gannet::control {

/// One digit per core: '1' if this process may run on it ("0011"). "" if the system reports none.
std::string own_cores();
/// The number of threads for one rank, at least 1: `all_threads`, which a process alone would use,
/// times the mean over the rank's cores of 1 / (number of ranks that may run on the core). Ranks
/// that the launcher binds to separate cores keep `all_threads`. `of_machine`: own_cores() of all
/// ranks of this machine.
uint32_t share_of_threads(uint32_t all_threads, const std::string& own, const std::vector<std::string>& of_machine);
/// Sets LibTorch's number of threads to this rank's share, unless OMP_NUM_THREADS or the program has
/// chosen a number (any except LibTorch's defaults: one per core, or one per physical core).
/// `tells`: whether this rank logs the share of the machine's ranks.
void share_threads(const std::vector<std::string>& of_machine, bool tells);

}  // namespace gannet::control
