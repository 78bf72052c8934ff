#include "kit/comm/launched.h"

#include <gannet/error.h>

#include <cstdlib>

namespace gannet::kit {
namespace {

std::optional<LaunchedRank>& place_of_process() {
  static std::optional<LaunchedRank>& place = *new std::optional<LaunchedRank>;
  return place;
}

}  // namespace

void be_launched(const std::string& file) {
  constexpr const char* kVariables[][2] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};
  for (const auto& [rank, size] : kVariables) {
    const char *const own = std::getenv(rank), *const all = std::getenv(size);
    if (!own || !all) continue;
    place_of_process() = LaunchedRank{static_cast<uint32_t>(std::strtoul(own, nullptr, 10)),
                                      static_cast<uint32_t>(std::strtoul(all, nullptr, 10)), file};
    return;
  }
  throw Error(ErrorCode::kArgument, "--launched, and no launcher has given this process a rank",
              "start the kit with mpirun or srun: mpirun -n 3 gannet plugins check FILE --check moves --launched /dev/shm/store");
}

const std::optional<LaunchedRank>& launched() { return place_of_process(); }

}  // namespace gannet::kit
