// The plan of a `gannet run`, made before anything is started: the file, the cores, the
// environment.
#pragma once

#include <gannet/error.h>

#include <cstdint>
#include <string>
#include <vector>

#include "launch/node.h"

namespace gannet::launch {

struct LaunchOptions {
  uint32_t procs = 1;  // on each node, unless node.procs_of_nodes is set
  Node node = {};
  bool bind_cores_to_rank = false;
  uint32_t max_restarts = 0;                  // limit on restarts of all ranks after failures
  double restart_pause_seconds = 1;           // before the second restart in a row after quick failures; doubled each time
  double grace_seconds = 30;                  // from forwarding a stop to the ranks until SIGKILL: time to write a checkpoint
  std::vector<std::string> command;           // PROGRAM ARGS...
  std::vector<uint32_t> slots = {};           // the devices that this node's ranks see (launch/devices.h); empty: all
  std::vector<std::string> environment = {};  // "NAME=value", inherited by the ranks; empty: this process's
  std::string cgroup_root = "/sys/fs/cgroup", cgroup_membership = "/proc/self/cgroup";

  uint32_t first_rank() const;
  uint32_t world_size() const;
};

// Thrown if a program cannot be started. Has the shell's exit codes: 127 if the program was not
// found, 126 if it was found but is not executable.
class StartError : public Error {
 public:
  StartError(int code, const std::string& what_happened, const std::string& next_step = "")
      : Error(code == 127 ? ErrorCode::kNotFound : ErrorCode::kIo, what_happened, next_step), code_(code) {}
  int shell_code() const { return code_; }

 private:
  int code_;
};

// The file that `program` names: unchanged if it has a slash, else searched in `path` (PATH).
// Throws StartError.
std::string find_program(const std::string& program, const std::string& path);

// The environment that the ranks inherit, and its PATH.
std::vector<std::string> inherited_environment(const LaunchOptions& options);
std::string path_in(const std::vector<std::string>& environment);

// The i-th of `procs` equal-sized slices of `cores`; leftover cores are unused. Throws
// Error(kArgument) if there are fewer cores than ranks.
std::vector<int> core_slice(const std::vector<int>& cores, uint32_t procs, uint32_t index);

// The cores that this process may run on.
std::vector<int> available_cores();

// A port of this machine that nothing listens on, outside the range of ephemeral ports.
uint16_t free_port();

// Values shared by all ranks of one start.
struct StartValues {
  uint16_t port = 0;
  size_t cores = 1;      // all cores that the launcher may use
  uint32_t restart = 0;  // 0 for the first start
  std::string mark;      // see launch/marked.h
};

// The environment of the rank with this number on its node: `inherited` ("NAME=value"), overridden by
// the rank's own variables.
std::vector<std::string> rank_environment(const std::vector<std::string>& inherited, const LaunchOptions& options, uint32_t local,
                                          const StartValues& start);

}  // namespace gannet::launch
