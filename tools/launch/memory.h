// Finds out whether the kernel's OOM killer killed a process of this cgroup, from the cgroup's own
// counter: `oom_kill` in memory.events (cgroup v2) or in memory.oom_control (v1).
//
//   MemoryWatch watch;                     // reads the counter
//   ...                                    // a rank was killed by SIGKILL
//   std::string why = watch.why_killed();  // "out of memory: ..., limit 512.0 MiB", or that it was something else
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/machine_memory.h"

namespace gannet::launch {

class MemoryWatch {
 public:
  // `root`: the folder where cgroups are mounted; `membership`: the file that names this process's
  // cgroup.
  explicit MemoryWatch(const std::string& root = "/sys/fs/cgroup", const std::string& membership = "/proc/self/cgroup");

  // The likely reason for a SIGKILL since this object was made: one or two clauses without a full
  // stop.
  std::string why_killed() const;
  // The smallest limit among the cgroup and its ancestors; nullopt if there is none.
  std::optional<uint64_t> limit_bytes() const;
  const std::string& counter_file() const { return file_; }  // "" if this machine has none

 private:
  std::optional<uint64_t> kills() const;
  MemoryCgroup cgroup_;
  std::string file_;
  std::optional<uint64_t> before_;
};

}  // namespace gannet::launch
