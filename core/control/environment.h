// Who this process is among those that train together, read from its environment: a pure function of the variables.
//
//   Environment found = discover(variables_of_this_process(), {});
//   found.rank, found.world_size, found.discovered      // "RANK and WORLD_SIZE of the environment"
//
// First hit wins: what the call says (rank, world_size, init_method), RANK and its kin (gannet run, torchrun, mpirun with -x),
// the launchers of control/launchers.h, else a world of one. Variables that are incomplete or contradict one another are
// Error(kConfig), and so is a world of one where a launcher says that it started several: a rank that trains alone by mistake is
// worse than one that does not start.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "control/launchers.h"

namespace gannet::control {

struct Environment {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  std::optional<uint32_t> local_rank;  // not said: the rendezvous counts the ranks of this machine
  std::string master_addr;             // "" in a world of one
  uint16_t master_port = 0;
  bool agent_store = false;  // torchrun's own store already serves at master_addr:master_port
  std::string attempt;       // torchrun's restart count: keys of an earlier attempt may still be in its store
  std::string job;           // what tells this job from another one on the same port; "" when nothing does
  std::string discovered;    // where rank and world size came from
};

struct Overrides {
  std::optional<int> rank, world_size;
  std::string init_method;  // "", "env://" or "tcp://host:port"
};

// `process_of` is asked for the launcher's process (launcher_process) where no variable names the job.
Environment discover(const Variables& variables, const Overrides& overrides,
                     const std::function<std::string(const std::string&)>& process_of = launcher_process);

// seconds given by the call, else DEEPSPEED_TIMEOUT minutes, else 10 minutes.
std::chrono::milliseconds time_out(const Variables& variables, const std::optional<double>& seconds);

Variables variables_of_this_process();

}  // namespace gannet::control
