// The place of this process in a world that a launcher started (mpirun, srun): a Comm over MPI cannot
// be checked in ranks that the kit forks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gannet::kit {

struct LaunchedRank {
  uint32_t rank = 0, size = 1;
  std::string file;  // that all ranks see; the stores of their checks have its name and a number
};

// Reads rank and size from the launcher's variables. Throws Error(kEnvironment) without them.
void be_launched(const std::string& file);
const std::optional<LaunchedRank>& launched();

}  // namespace gannet::kit
