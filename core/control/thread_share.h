// Divides the cores of a machine among its ranks. LibTorch gives every process as many threads as the
// machine has cores, so ranks whose launcher sets no number (srun, mpirun) slow each other down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gannet::control {

/// A digit per core, by number, '1' if this process may run on it: "0011". "" if the system does not report it.
std::string own_cores();
/// The number of threads of one rank: `all_threads`, the number of a process that runs alone, times the
/// mean, over the rank's cores, of 1 / (the number of ranks that may run on the core). At least 1. Ranks
/// that the launcher binds to separate cores keep `all_threads`. `of_machine`: own_cores() of all ranks
/// of this machine.
uint32_t share_of_threads(uint32_t all_threads, const std::string& own, const std::vector<std::string>& of_machine);
/// Sets LibTorch's number of threads to this rank's share, unless OMP_NUM_THREADS or the program has
/// chosen a number (any except LibTorch's defaults: one per core, or one per physical core).
/// `tells`: whether this rank logs the share of the machine's ranks.
void share_threads(const std::vector<std::string>& of_machine, bool tells);

}  // namespace gannet::control
