#include "control/launchers.h"

#include <gannet/error.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/format.h"
#include "base/text.h"

namespace gannet::control {
namespace {

// The names of a launcher's variables; null where it has none.
struct Launcher {
  const char* name;
  const char* marker;  // the other variables are valid only if this one is set
  const char* rank;
  const char* size[2];  // the first one that is set is used
  const char* local_rank;
  const char* local_size;       // number of ranks on this machine: if it equals the size, all ranks are here
  const char* nodes;            // number of machines: if it is 1, all ranks are here
  const char* job[2];           // together they name the job
  const char* hosts = nullptr;  // the machines' names, that of rank 0 first
};

// The launchers in order of precedence.
constexpr Launcher kLaunchers[] = {
    {"Open MPI",
     nullptr,
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_SIZE"},
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     nullptr,
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"MVAPICH",
     nullptr,
     "MV2_COMM_WORLD_RANK",
     {"MV2_COMM_WORLD_SIZE"},
     "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE",
     nullptr,
     {}},
    {"MVAPICH",
     nullptr,
     "MVP_COMM_WORLD_RANK",
     {"MVP_COMM_WORLD_SIZE"},
     "MVP_COMM_WORLD_LOCAL_RANK",
     "MVP_COMM_WORLD_LOCAL_SIZE",
     nullptr,
     {}},
    {"Cray's PALS", "PALS_APID", "PMI_RANK", {"PMI_SIZE"}, "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", nullptr, {"PALS_APID"}},
    {"MPICH", nullptr, "PMI_RANK", {"PMI_SIZE"}, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr, {"PMI_JOBID"}},
    {"Flux", nullptr, "FLUX_TASK_RANK", {"FLUX_JOB_SIZE"}, "FLUX_TASK_LOCAL_ID", nullptr, "FLUX_JOB_NNODES", {"FLUX_JOB_ID"}},
    // For the tasks of a step that srun started. The sbatch script also has SLURM_PROCID and the
    // job's SLURM_NTASKS, but is not a task. The step's number of tasks takes precedence over the
    // job's.
    {"Slurm",
     "SLURM_STEP_ID",
     "SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     "SLURM_LOCALID",
     nullptr,
     "SLURM_STEP_NUM_NODES",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     "SLURM_STEP_NODELIST"},
};

// Launchers that do not give the number of ranks; a launcher that does takes precedence.
constexpr Launcher kWithoutSize[] = {
    {"PMIx", nullptr, "PMIX_RANK", {}, nullptr, nullptr, nullptr, {"PMIX_NAMESPACE"}},
    {"An indexed Kubernetes job", nullptr, "JOB_COMPLETION_INDEX", {}, nullptr, nullptr, nullptr, {}},
};

std::optional<uint32_t> number_in(const Variables& variables, const char* name) {
  const auto* text = name ? find(variables, name) : nullptr;
  if (!text) return std::nullopt;
  return number(name, *text, kMostRanks, kHowToStart);
}

std::optional<Claim> claim_of(const Variables& variables, const Launcher& launcher) {
  if (launcher.marker && !find(variables, launcher.marker)) return std::nullopt;
  Claim claim;
  claim.launcher = launcher.name;
  claim.rank = number_in(variables, launcher.rank);
  const char* size = launcher.size[0] && find(variables, launcher.size[0]) ? launcher.size[0] : launcher.size[1];
  claim.size = number_in(variables, size);
  if (!claim.rank && claim.size.value_or(1) == 1) return std::nullopt;
  for (const char* name : {launcher.rank, size, launcher.marker})
    if (name && find(variables, name)) claim.variables.push_back(name);
  claim.local_rank = number_in(variables, launcher.local_rank);
  const auto here = number_in(variables, launcher.local_size), nodes = number_in(variables, launcher.nodes);
  claim.on_one_machine = (claim.size && here == claim.size) || nodes == 1u;
  claim.is_one_a_machine = claim.size > 1u && (here == 1u || nodes == claim.size);
  // In a heterogeneous step, or if a file maps tasks to machines, rank 0 may be elsewhere.
  const auto* distribution = find(variables, "SLURM_DISTRIBUTION");
  const bool is_in_order = !find(variables, "SLURM_HET_SIZE") && !(distribution && distribution->starts_with("arbitrary"));
  if (const auto* hosts = launcher.hosts && is_in_order ? find(variables, launcher.hosts) : nullptr)
    claim.first_host = first_host_of(*hosts);
  for (const char* name : launcher.job)
    if (const auto* part = name ? find(variables, name) : nullptr) claim.job += formatted("{} ", *part);
  return claim;
}

// Reads Kubeflow's variables for torchrun as torchrun does: PET_NNODES is the number of nodes ("2",
// "1:4"), and PET_NPROC_PER_NODE is the number of processes on each (a number, "auto", "gpu" or
// "cpu"; 1 if unset).
std::optional<Claim> claim_of_torchrun(const Variables& variables) {
  const auto *nodes = find(variables, "PET_NNODES"), *each = find(variables, "PET_NPROC_PER_NODE");
  if (!nodes && !each) return std::nullopt;
  const bool is_elastic = nodes && nodes->find(':') != std::string::npos;
  const uint32_t most =
      nodes ? number("PET_NNODES", nodes->substr(is_elastic ? nodes->find(':') + 1 : 0), kMostRanks, kHowToStart) : 1;
  const bool is_counted = each && each->find_first_not_of("0123456789") == std::string::npos;
  const uint32_t procs = is_counted ? number("PET_NPROC_PER_NODE", *each, kMostRanks, kHowToStart) : 1;
  if (!nodes && procs <= 1) return std::nullopt;
  Claim claim;
  claim.launcher = "Kubeflow, for torchrun,";
  for (const char* name : {"PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE"})
    if (find(variables, name)) claim.variables.push_back(name);
  claim.started_from_here = most <= 1 && procs > 1;
  claim.size = most <= 1 ? procs : most;
  claim.rank = number_in(variables, "PET_NODE_RANK");
  if (claim.size == 1u) claim.rank = 0;
  const std::string on_each = formatted("PET_NPROC_PER_NODE={}", each ? *each : "");
  if (claim.size > 1u && each && *each != "1")
    claim.why_not = formatted("{} leaves it to torchrun to start the processes of a node", on_each);
  else if (claim.size > 1u && (is_elastic || !claim.rank))
    claim.why_not = is_elastic ? formatted("PET_NNODES={} is a number of nodes that torchrun changes while they run", *nodes)
                               : "PET_NODE_RANK is not set, so torchrun is to find the ranks out";
  if (claim.started_from_here) claim.rank.reset();
  if (const auto* address = find(variables, "PET_MASTER_ADDR")) claim.master_addr = *address;
  if (const auto* port = find(variables, "PET_MASTER_PORT")) claim.master_port = *port;
  return claim;
}

std::string content_of(const std::string& file, bool& is_readable) {
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  is_readable = stream.good() || stream.eof();
  return text;
}

}  // namespace

const std::string* find(const Variables& variables, const std::string& name) {
  const auto at = variables.find(name);
  return at == variables.end() || at->second.empty() ? nullptr : &at->second;
}

uint32_t number(const std::string& name, const std::string& text, uint32_t most, const std::string& next_step) {
  uint32_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value > most)
    throw Error(ErrorCode::kConfig, formatted("{} is '{}', which is not a whole number from 0 to {}", name, text, most),
                next_step);
  return value;
}

std::string Claim::text() const {
  std::string as = rank ? formatted("rank {}", *rank) : "one process";
  as += size ? formatted(" of {}", *size) : "";
  return formatted("{}{} ({})", launcher,
                   started_from_here ? formatted(" expects {} processes", *size) : formatted(" started this as {}", as),
                   join(variables, ", "));
}

std::string Claim::without(const char* program) const {
  std::string command = "env";
  for (const auto& name : variables) command += formatted(" -u {}", name);
  return formatted("{} {}", command, program);
}

std::vector<Claim> claims(const Variables& variables) {
  std::vector<Claim> found;
  for (const Launcher& launcher : kLaunchers) {
    auto claim = claim_of(variables, launcher);
    const auto same = [&](const Claim& other) { return other.variables[0] == claim->variables[0]; };
    if (claim && std::none_of(found.begin(), found.end(), same)) found.push_back(std::move(*claim));
  }
  if (auto claim = claim_of_torchrun(variables)) found.push_back(std::move(*claim));
  if (std::none_of(found.begin(), found.end(), [](const Claim& claim) { return claim.size.has_value(); }))
    for (const Launcher& launcher : kWithoutSize)
      if (auto claim = claim_of(variables, launcher)) found.push_back(std::move(*claim));
  // srun and flux run also set PMI's variables, which do not show whether all ranks are on one
  // machine. So each claim is completed from the others with the same rank and size.
  for (Claim& claim : found)
    for (const Claim& other : found)
      if (other.rank == claim.rank && other.size == claim.size) {
        claim.on_one_machine |= other.on_one_machine;
        claim.is_one_a_machine |= other.is_one_a_machine;
        if (claim.job.empty()) claim.job = other.job;
      }
  return found;
}

std::optional<Claim> claim_of_several(const Variables& variables) {
  const bool is_said = find(variables, "RANK") && find(variables, "WORLD_SIZE");
  if (const auto size = number_in(variables, "WORLD_SIZE"); size && *size > 1) {
    Claim claim;
    claim.launcher = "A launcher";
    claim.rank = number_in(variables, "RANK");
    claim.size = size;
    for (const char* name : {"RANK", "WORLD_SIZE"})
      if (find(variables, name)) claim.variables.push_back(name);
    return claim;
  }
  // RANK and WORLD_SIZE=1 settle the size for a launcher that gives none, but contradict a launcher
  // that gives a larger one.
  for (const Claim& claim : claims(variables))
    if (claim.is_one_of_several() && !claim.started_from_here && (claim.size || !is_said)) return claim;
  return std::nullopt;
}

uint32_t tasks_without_srun(const Variables& variables) {
  if (!find(variables, "SLURM_JOB_ID") || find(variables, "SLURM_STEP_ID")) return 0;
  const auto tasks = number_in(variables, "SLURM_NTASKS");
  return tasks.value_or(1) > 1 ? *tasks : 0;
}

std::string launcher_process(const std::string& variable) {
  std::string pid = std::to_string(getppid());
  for (int level = 0; level < 64 && pid != "0"; ++level) {
    const std::string folder = formatted("/proc/{}", pid);
    bool is_readable = false;
    const std::string environment = std::string(1, '\0') + content_of(formatted("{}/environ", folder), is_readable);
    // The file has the form "pid (name) state ppid ..."; the name may contain anything, even a
    // parenthesis. The start time is the 22nd field.
    const std::string status = content_of(formatted("{}/stat", folder), is_readable);
    std::istringstream fields(status.substr(std::min(status.size(), status.rfind(')') + 1)));
    const std::vector<std::string> words{std::istream_iterator<std::string>(fields), {}};
    if (words.size() < 20) return "";
    if (environment.find(formatted("{}{}=", std::string(1, '\0'), variable)) == std::string::npos)
      return formatted("{} {}", pid, words[19]);
    pid = words[1];
  }
  return "";
}

std::string first_host_of(const std::string& list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t end = list.find(']', i);
    if (end == std::string::npos) return "";
    host += list.substr(i + 1, list.find_first_of("-,]", i) - i - 1);
    i = end;
  }
  return host;
}

uint16_t port_of_job(const std::string& job) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char letter : job) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return static_cast<uint16_t>(20'000 + (hash ^ hash >> 32) % 12'000);
}

}  // namespace gannet::control
