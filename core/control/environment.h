// Determines rank, world size and master address from environment variables. discover() is a pure
// function, except that it calls `process_of` and looks for a loaded MPI library (can_exchange).
//
//   Environment found = discover(variables_of_this_process(), {});
//   found.rank, found.world_size, found.discovered      // "RANK and WORLD_SIZE of the environment"
//
// The first match wins: the call's arguments (rank, world_size, init_method); RANK and related
// variables (gannet run, torchrun, mpirun with -x); the launchers of control/launchers.h; else a
// world of one. Throws Error(kConfig) if variables are incomplete or contradictory, and also for a
// world of one if a launcher declares that it started several processes: a rank that trains alone
// by mistake is worse than one that does not start.
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
  std::optional<uint32_t> local_rank;  // unset: the rendezvous counts the ranks of this machine
  std::string master_addr;             // "" in a world of one
  uint16_t master_port = 0;
  bool exchanges = false;     // the ranks learn the address through their launcher (control/address_exchange.h)
  bool agent_store = false;   // torchrun's own store already serves at master_addr:master_port
  bool is_restarted = false;  // by gannet run: ranks of other nodes may still be running the previous attempt
  std::string run;            // the id of the gannet run, the same in each attempt; "" without it
  std::string job;            // identifies this job among others on the same port; "" if unknown
  std::string discovered;     // where rank and world size were found, in words
};

struct Overrides {
  std::optional<int> rank, world_size;
  std::string init_method;  // "", "env://" or "tcp://host:port"
};

// If no variable names the job and all ranks are on this machine, calls `process_of`
// (launcher_process) to identify the job by the launcher's process.
Environment discover(const Variables& variables, const Overrides& overrides,
                     const std::function<std::string(const std::string&)>& process_of = launcher_process);

// Returns `seconds` if given, else DEEPSPEED_TIMEOUT (in minutes), else 10 minutes. Throws Error(kArgument, kConfig).
std::chrono::milliseconds time_out(const Variables& variables, const std::optional<double>& seconds);

Variables variables_of_this_process();

}  // namespace gannet::control
