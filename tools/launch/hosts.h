// The hosts of a run, from a hostfile, filters and counts, as DeepSpeed's launcher has them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/hostfile.h"

namespace gannet::launch {

struct HostOptions {
  std::string hostfile = {};  // --hostfile; "": kDefaultHostfile, if it exists
  std::string include = {}, exclude = {};
  std::optional<uint32_t> nodes = {};  // --num_nodes: the first N hosts
  uint32_t procs = 0;                  // --num_gpus, --num_procs: slots 0 to N - 1 of each host; 0: all
};

// The hosts that take part, with the slots that they use, from those of a hostfile. Throws Error(kArgument) for
// counts that the hosts do not have, and for filters beside counts.
std::vector<Host> chosen_hosts(const std::vector<Host>& hosts, const HostOptions& options);

// The slots of this machine that --include and --exclude choose without a hostfile, where it is "localhost". `devices`:
// its number of devices; 0: not known.
std::vector<uint32_t> chosen_slots(uint32_t devices, const HostOptions& options);

// The line that starts the same run by srun, mpirun or kubectl: DeepSpeed's --launcher NAME. Throws
// Error(kUnsupported), whose next step is the line; Error(kArgument) for a name that nobody knows.
[[noreturn]] void refuse_launcher(const std::string& name, const std::vector<Host>& hosts,
                                  const std::vector<std::string>& command);

// A word as a shell reads it back.
std::string shell_word(const std::string& word);

}  // namespace gannet::launch
