// The hosts of a run: a hostfile, filtered and counted as in DeepSpeed's launcher.
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

// Chooses hosts and slots from those of a hostfile. Throws Error(kArgument) for counts above what
// the hosts have, and for filters combined with counts.
std::vector<Host> chosen_hosts(const std::vector<Host>& hosts, const HostOptions& options);

// The slots that --include and --exclude choose on this machine without a hostfile, where it is
// "localhost". `devices`: its number of devices; 0: unknown.
std::vector<uint32_t> chosen_slots(uint32_t devices, const HostOptions& options);

// For DeepSpeed's --launcher NAME: throws Error(kUnsupported), whose next step is the srun, mpirun
// or kubectl line that starts the same run, or Error(kArgument) for an unknown name.
[[noreturn]] void refuse_launcher(const std::string& name, const std::vector<Host>& hosts,
                                  const std::vector<std::string>& command);

// Quotes a word for a shell.
std::string shell_word(const std::string& word);

}  // namespace gannet::launch
