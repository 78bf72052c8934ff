// Divides the cores of a machine among its ranks. LibTorch gives every process as many threads as the
// machine has cores, so that ranks which nobody told otherwise (srun, mpirun) slow each other down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gannet::control {

/// A '1' for each core that this process may run on, by number: "0011". "" if the system does not say.
std::string own_cores();
/// The part of `all_threads`, those of a process alone, that one rank takes: for each of its cores,
/// one divided by the number of ranks that may run there. At least 1. A launcher that binds each rank to
/// cores of its own has divided them already. `of_machine`: own_cores() of the machine's ranks, with this
/// one's.
uint32_t share_of_threads(uint32_t all_threads, const std::string& own, const std::vector<std::string>& of_machine);
/// Sets LibTorch's number of threads to this rank's share, unless OMP_NUM_THREADS or the program has
/// chosen a number (any other than LibTorch's own: one for each core, or for each physical core).
/// `tells`: whether this rank logs the share of the machine's ranks.
void share_threads(const std::vector<std::string>& of_machine, bool tells);

}  // namespace gannet::control
