// Reads the variables that cluster launchers (mpirun, srun, flux run, torchrun's PET_*, an indexed
// Kubernetes job) set for the processes they start. Only reads them, without deciding whether to
// use them.
//
//   for (const Claim& claim : claims(variables)) claim.launcher, claim.rank, claim.size     // "Slurm", 1, 2
//
// control/environment.h decides whether to use a claim or to refuse it; `gannet run` may be one of
// several processes if there is one on each machine (launch/node.h).
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
  bool is_one_a_machine = false;         // the launcher started one process on each machine
  std::string first_host;                // rank 0's machine if the launcher lists machines, else ""
  std::string master_addr, master_port;  // if the launcher gives them, else ""
  std::string job;                       // the same on all ranks of a job, different for each job; "" if not given
  std::string why_not;                   // why the ranks cannot be joined although rank and size may be known; else ""
  bool started_from_here = false;        // a launcher on this machine, in this environment, has yet to start the others

  bool is_one_of_several() const { return size ? *size > 1 : rank.has_value(); }
  std::string text() const;                        // "Slurm started this as rank 1 of 2 (SLURM_PROCID, SLURM_STEP_NUM_TASKS)"
  std::string without(const char* program) const;  // "env -u SLURM_PROCID -u SLURM_STEP_NUM_TASKS PROGRAM"
};

// The claims in order of precedence: a launcher that may run inside another one (mpirun inside
// srun) comes first. Claims without information (a size of 1 without a rank) are left out. Throws
// Error(kConfig) if a value is not a number.
std::vector<Claim> claims(const Variables& variables);

// The claim of a launcher that started this process as one of several. RANK and WORLD_SIZE also count as
// such a claim.
std::optional<Claim> claim_of_several(const Variables& variables);

// The number of tasks that srun would start from this process, if it is part of a Slurm job but not
// started by srun (the batch script, salloc's shell). 0 elsewhere, and if there is only one task.
uint32_t tasks_without_srun(const Variables& variables);

// Identifies the launcher process by its process id and start time. The string is the same on all
// ranks that the launcher started on this machine, and different for each job. The launcher is the
// nearest ancestor that does not have the variable in its environment. "" if it cannot be
// determined.
std::string launcher_process(const std::string& variable);

// The first host of a list in Slurm's notation: "gpu03" for "gpu[03-07,9],login1".
std::string first_host_of(const std::string& list);

// A port from 20000 to 31999, derived from the job. This range is below the ephemeral ports.
uint16_t port_of_job(const std::string& job);

// The variable's value; null if it is unset or empty.
const std::string* find(const Variables& variables, const std::string& name);

// Parses an integer from 0 to `most`; throws Error(kConfig) with the variable's name if the text is
// anything else.
uint32_t number(const std::string& name, const std::string& text, uint32_t most, const std::string& next_step);

inline constexpr uint32_t kMostRanks = 0x7fffffff;
inline constexpr const char* kHowToStart =
    "start the program with `gannet run --num_procs N PROGRAM`, which sets them all, or unset them to train with one process";

}  // namespace gannet::control
