// Describes this machine, for reports that people read. No code makes decisions based on it.
//
//   const Machine machine = this_machine();   // {"node7", "Linux 6.1.0 x86_64", "AMD EPYC 9654", 2, ...}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gannet {

struct Machine {
  std::string host, system;  // "Linux 6.1.0 x86_64"
  std::string distribution;  // "" if the system does not provide it
  std::string processor;     // "AMD EPYC 9654 96-Core Processor"
  int64_t cores = 0;         // the number of cores that this process may use, given its affinity
  int64_t cores_of_machine = 0;
  std::vector<std::string>
      instruction_sets;  // the ones that matter for speed: "avx2", "fma", "f16c", "avx512f", "avx512_bf16", "amx_bf16" ...
};

// `proc` is the mount point of that file system.
Machine this_machine(const std::string& proc = "/proc");

}  // namespace gannet
