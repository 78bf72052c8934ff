// Reads the variables that cluster launchers (mpirun, srun, flux run, torchrun's PET_*, an indexed
// Kubernetes job) set for the processes they start. A table, without judgement.
//
//   for (const Claim& claim : claims(variables)) claim.launcher, claim.rank, claim.size     // "Slurm", 1, 2
//
// control/environment.h joins a claim's ranks or refuses the claim; `gannet run` refuses to be one
// of several.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gannet::control {

using Variables = std::map<std::string, std::string>;

struct Claim {
  std::string launcher;                  // "Slurm"
  std::vector<std::string> variables;    // the variables that are set: "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"
  std::optional<uint32_t> rank;          // nullopt: not given
  std::optional<uint32_t> size;          // nullopt: not given, as with PMIx and Kubernetes
  std::optional<uint32_t> local_rank;    // nullopt: not given
  bool on_one_machine = false;           // all ranks run on this machine, including rank 0
  std::string master_addr, master_port;  // if the launcher gives them, else ""
  std::string job;                       // the same on all ranks of a job, different for other jobs; "" if not given
  std::string why_not;                   // why the ranks cannot be joined although rank and size may be known; else ""
  bool started_from_here = false;        // a launcher on this machine and in this environment is to start the others

  bool is_one_of_several() const { return size ? *size > 1 : rank.has_value(); }
  std::string text() const;  // "Slurm started this as rank 1 of 2 (SLURM_PROCID, SLURM_STEP_NUM_TASKS)"
};

// In order of precedence: a launcher that may run below another (mpirun below srun) comes first.
// Claims without information (a size of 1 without a rank) are left out. Throws Error(kConfig) if a
// value is not a number.
std::vector<Claim> claims(const Variables& variables);

// The claim by which another launcher started this process as one of several: `gannet run` must not
// be one. Includes RANK and WORLD_SIZE.
std::optional<Claim> claim_of_several(const Variables& variables);

// Identifies the launcher process: the same text on all ranks that it started on this machine,
// different for another job. It is the nearest ancestor without the variable in its environment, by
// process id and start time. "" if that cannot be determined.
std::string launcher_process(const std::string& variable);

// A port from 20000 to 31999, derived from the job: below the range of ephemeral ports.
uint16_t port_of_job(const std::string& job);

// The variable's value; null if it is unset or empty.
const std::string* find(const Variables& variables, const std::string& name);

// An integer from 0 to `most`; otherwise throws Error(kConfig) naming the variable.
uint32_t number(const std::string& name, const std::string& text, uint32_t most, const std::string& next_step);

inline constexpr uint32_t kMostRanks = 0x7fffffff;
inline constexpr const char* kHowToStart =
    "start the program with `gannet run --num_procs N PROGRAM`, which sets them all, or unset them to train with one process";

}  // namespace gannet::control
