#include "control/environment.h"

#include <gannet/error.h>

#include <charconv>
#include <limits>
#include <vector>

#include "base/text.h"

extern char** environ;

namespace gannet::control {
namespace {

constexpr const char* kHowToStart =
    "start the program with `gannet run --num_procs N PROGRAM`, which sets them all, or unset them to train with one process";
// DeepSpeed's default distributed_port, for launchers that name no port.
constexpr uint16_t kDefaultPort = 29500;

const std::string* find(const Variables& variables, const std::string& name) {
  const auto at = variables.find(name);
  return at == variables.end() || at->second.empty() ? nullptr : &at->second;
}

uint32_t number(const std::string& name, const std::string& text, uint32_t most, const std::string& next_step = kHowToStart) {
  uint32_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value > most)
    throw Error(ErrorCode::kConfig, name + " is '" + text + "', which is not a whole number from 0 to " + std::to_string(most),
                next_step);
  return value;
}

constexpr uint32_t kMostRanks = std::numeric_limits<int32_t>::max();

// Which variables a launcher says it in.
struct Launcher {
  const char* name;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_size;  // ranks on this machine: when it is the world's size, the master is here; null: not said
};

constexpr Launcher kLaunchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    // srun's own step, not the job: in a batch script the job has many tasks and the script itself is none of them.
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
};

// "host:port" or "[v6]:port".
void parse_address(const std::string& text, const std::string& where, Environment& found) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size())
    throw Error(ErrorCode::kConfig, where + " names no host and port: '" + text + "'",
                "write it as tcp://host:port, as in tcp://10.0.0.1:29500");
  found.master_addr = text.substr(0, colon);
  if (found.master_addr.size() > 2 && found.master_addr.front() == '[' && found.master_addr.back() == ']')
    found.master_addr = found.master_addr.substr(1, found.master_addr.size() - 2);
  found.master_port =
      static_cast<uint16_t>(number("the port of " + where, text.substr(colon + 1), 65535, "write it as tcp://host:port"));
}

// MASTER_ADDR and MASTER_PORT, both or none.
bool read_master(const Variables& variables, Environment& found) {
  const auto* address = find(variables, "MASTER_ADDR");
  const auto* port = find(variables, "MASTER_PORT");
  if (!address || !port) return false;
  found.master_addr = *address;
  found.master_port = static_cast<uint16_t>(number("MASTER_PORT", *port, 65535));
  return true;
}

std::string missing_of(const Variables& variables, const std::vector<std::string>& names) {
  std::vector<std::string> missing;
  for (const auto& name : names)
    if (!find(variables, name)) missing.push_back(name);
  return join(missing, ", ");
}

void check_ranks(const Environment& found, const std::string& rank_name, const std::string& world_name) {
  if (found.world_size == 0) throw Error(ErrorCode::kConfig, world_name + " is 0: a world has at least one rank", kHowToStart);
  if (found.rank >= found.world_size)
    throw Error(ErrorCode::kConfig,
                rank_name + " is " + std::to_string(found.rank) + " and " + world_name + " is " +
                    std::to_string(found.world_size) + ": ranks count from 0 to " + world_name + " - 1",
                kHowToStart);
  if (found.local_rank && *found.local_rank > found.rank)
    throw Error(ErrorCode::kConfig,
                "the local rank is " + std::to_string(*found.local_rank) + " and " + rank_name + " is " +
                    std::to_string(found.rank) + ": the rank on one machine cannot be above the rank in the world",
                kHowToStart);
}

bool from_launcher(const Variables& variables, const Launcher& launcher, bool address_known, Environment& found) {
  const auto* rank = find(variables, launcher.rank);
  const auto* world = find(variables, launcher.world_size);
  if (!rank || !world) return false;
  found.rank = number(launcher.rank, *rank, kMostRanks);
  found.world_size = number(launcher.world_size, *world, kMostRanks);
  if (const auto* local = find(variables, launcher.local_rank))
    found.local_rank = number(launcher.local_rank, *local, kMostRanks);
  check_ranks(found, launcher.rank, launcher.world_size);
  found.discovered = std::string(launcher.rank) + " and " + launcher.world_size + " of " + launcher.name;
  if (found.world_size == 1 || address_known || read_master(variables, found)) return true;

  const auto* local_size = launcher.local_size ? find(variables, launcher.local_size) : nullptr;
  if (local_size && number(launcher.local_size, *local_size, kMostRanks) == found.world_size) {
    found.master_addr = "127.0.0.1";
    const auto* port = find(variables, "MASTER_PORT");
    found.master_port = port ? static_cast<uint16_t>(number("MASTER_PORT", *port, 65535)) : kDefaultPort;
    return true;
  }
  throw Error(ErrorCode::kConfig,
              std::string(launcher.name) + " started this as rank " + std::to_string(found.rank) + " of " +
                  std::to_string(found.world_size) + ", but " + missing_of(variables, {"MASTER_ADDR", "MASTER_PORT"}) +
                  " of the environment are not set, so the ranks cannot find one another",
              "export MASTER_ADDR (a name or address of the machine that rank 0 runs on) and MASTER_PORT (a free port there)");
}

}  // namespace

Environment discover(const Variables& variables, const Overrides& overrides) {
  Environment found;
  bool address_known = false;
  if (!overrides.init_method.empty() && overrides.init_method != "env://") {
    if (overrides.init_method.rfind("tcp://", 0) != 0)
      throw Error(ErrorCode::kConfig, "init_method is '" + overrides.init_method + "'",
                  "it is env:// (the default) or tcp://host:port");
    parse_address(overrides.init_method.substr(6), "init_method '" + overrides.init_method + "'", found);
    address_known = true;
  }
  if (const auto* agent = find(variables, "TORCHELASTIC_USE_AGENT_STORE"); agent && lower(*agent) == "true" && !address_known) {
    found.agent_store = true;
    if (const auto* attempt = find(variables, "TORCHELASTIC_RESTART_COUNT")) found.attempt = *attempt;
  }

  const bool told = overrides.rank || overrides.world_size;
  const auto* rank = find(variables, "RANK");
  const auto* world = find(variables, "WORLD_SIZE");
  const auto* local = find(variables, "LOCAL_RANK");
  if (told || rank || world || local) {
    if (!(rank || overrides.rank) || !(world || overrides.world_size)) {
      std::vector<std::string> missing;
      if (!rank && !overrides.rank) missing.push_back("RANK");
      if (!world && !overrides.world_size) missing.push_back("WORLD_SIZE");
      throw Error(ErrorCode::kConfig,
                  join(missing, " and ") + (missing.size() > 1 ? " are" : " is") + " not set, though " +
                      (told    ? "the call of init_distributed gives the other"
                       : rank  ? "RANK is"
                       : world ? "WORLD_SIZE is"
                               : "LOCAL_RANK is"),
                  kHowToStart);
    }
    const auto chosen = [](const char* name, const std::optional<int>& given, const std::string* text) {
      return number(name, given ? std::to_string(*given) : *text, kMostRanks);
    };
    found.rank = chosen("RANK", overrides.rank, rank);
    found.world_size = chosen("WORLD_SIZE", overrides.world_size, world);
    if (local && !overrides.rank) found.local_rank = number("LOCAL_RANK", *local, kMostRanks);
    check_ranks(found, "RANK", "WORLD_SIZE");
    if (const auto* local_size = find(variables, "LOCAL_WORLD_SIZE");
        local_size && found.local_rank && *found.local_rank >= number("LOCAL_WORLD_SIZE", *local_size, kMostRanks))
      throw Error(ErrorCode::kConfig, "LOCAL_RANK is " + *local + " and LOCAL_WORLD_SIZE is " + *local_size, kHowToStart);
    if (found.world_size > 1 && !address_known && !read_master(variables, found))
      throw Error(ErrorCode::kConfig,
                  "this is rank " + std::to_string(found.rank) + " of " + std::to_string(found.world_size) + ", but " +
                      missing_of(variables, {"MASTER_ADDR", "MASTER_PORT"}) + " of the environment is not set",
                  kHowToStart);
    found.discovered = told ? "the call of init_distributed" : "RANK and WORLD_SIZE of the environment";
  } else {
    bool hit = false;
    for (const auto& launcher : kLaunchers)
      if ((hit = from_launcher(variables, launcher, address_known, found))) break;
    if (!hit) found.discovered = "RANK is not set: one process";
  }

  if (found.world_size > 1 && found.master_port == 0)
    throw Error(ErrorCode::kConfig,
                "MASTER_PORT is 0: " + std::to_string(found.world_size) + " ranks must know the port that rank 0 serves at",
                "choose a free port, as 29500, the same on all ranks");
  return found;
}

std::chrono::milliseconds time_out(const Variables& variables, const std::optional<double>& seconds) {
  if (seconds) {
    if (!(*seconds > 0 && *seconds < 1e9))
      throw Error(ErrorCode::kArgument, "timeout_seconds is " + std::to_string(*seconds), "give a number of seconds above 0");
    return std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1000 + 0.5));
  }
  if (const auto* minutes = find(variables, "DEEPSPEED_TIMEOUT")) {
    const uint32_t value = number("DEEPSPEED_TIMEOUT", *minutes, 1'000'000, "it is the time-out in whole minutes");
    if (value == 0) throw Error(ErrorCode::kConfig, "DEEPSPEED_TIMEOUT is 0", "it is the time-out in whole minutes, at least 1");
    return std::chrono::minutes(value);
  }
  return std::chrono::minutes(10);
}

Variables variables_of_this_process() {
  Variables variables;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

}  // namespace gannet::control
