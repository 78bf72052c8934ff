// What the launchers of clusters (mpirun, srun, flux run, torchrun's PET_*, an indexed Kubernetes job) say in the environment
// of a process that they start: a table of their variables, read without judging.
//
//   for (const Claim& claim : claims(variables)) claim.launcher, claim.rank, claim.size     // "Slurm", 1, 2
//
// control/environment.h joins the ranks that a claim names, or refuses it; `gannet run` refuses to be one of several.
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
  std::vector<std::string> variables;    // those that are set and say it: "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"
  std::optional<uint32_t> rank;          // nullopt: not said
  std::optional<uint32_t> size;          // nullopt: not said, as PMIx and Kubernetes do not
  std::optional<uint32_t> local_rank;    // nullopt: not said
  bool on_one_machine = false;           // all ranks run on this machine, so rank 0 does
  std::string master_addr, master_port;  // that the launcher itself names; "" else
  std::string job;                       // the same text on all ranks, another one for another job; "" when not said
  std::string why_not;                   // why its ranks cannot be joined though rank and size may be known; "" else
  bool started_from_here = false;        // the others are to be started by a launcher on this machine, in this environment

  bool is_one_of_several() const { return size ? *size > 1 : rank.has_value(); }
  std::string text() const;  // "Slurm started this as rank 1 of 2 (SLURM_PROCID, SLURM_STEP_NUM_TASKS)"
};

// In the order in which they are believed: a launcher that may run below another one (mpirun below srun) comes first. A claim
// that says nothing (a size of 1 without a rank) is left out. Error(kConfig) when a number is not one.
std::vector<Claim> claims(const Variables& variables);

// The claim that makes this process one of several whose others it does not start: what `gannet run` must not be. RANK and
// WORLD_SIZE count here too.
std::optional<Claim> claim_of_several(const Variables& variables);

// The same text on all ranks that one launcher started on this machine, another one for another job: the nearest ancestor of
// this process without the variable in its environment, by process id and start time. "" where that cannot be found out.
std::string launcher_process(const std::string& variable);

// A port from 20000 to 31999, chosen by the job: below those from which outgoing connections take theirs.
uint16_t port_of_job(const std::string& job);

// The variable's value, null when it is not set or empty.
const std::string* find(const Variables& variables, const std::string& name);

// A whole number from 0 to `most`, else Error(kConfig) that names the variable.
uint32_t number(const std::string& name, const std::string& text, uint32_t most, const std::string& next_step);

inline constexpr uint32_t kMostRanks = 0x7fffffff;
inline constexpr const char* kHowToStart =
    "start the program with `gannet run --num_procs N PROGRAM`, which sets them all, or unset them to train with one process";

}  // namespace gannet::control
