#include "control/environment.h"

#include <gannet/error.h>

#include <vector>

#include "base/format.h"
#include "base/text.h"
#include "control/address_exchange.h"

extern char** environ;

namespace gannet::control {
namespace {

// DeepSpeed's default distributed_port, for launchers that name no port.
constexpr uint16_t kDefaultPort = 29500;

// Parses "host:port" or "[v6]:port".
void parse_address(const std::string& text, const std::string& where, Environment& found) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size())
    throw Error(ErrorCode::kConfig, formatted("{} names no host and port: '{}'", where, text),
                "write it as tcp://host:port, as in tcp://10.0.0.1:29500");
  found.master_addr = text.substr(0, colon);
  if (found.master_addr.size() > 2 && found.master_addr.front() == '[' && found.master_addr.back() == ']')
    found.master_addr = found.master_addr.substr(1, found.master_addr.size() - 2);
  found.master_port = static_cast<uint16_t>(
      number(formatted("the port of {}", where), text.substr(colon + 1), 65535, "write it as tcp://host:port"));
}

uint16_t port_number(const std::string& text) { return static_cast<uint16_t>(number("MASTER_PORT", text, 65535, kHowToStart)); }

// Reads MASTER_ADDR and MASTER_PORT if both are set; returns whether they are.
bool read_master(const Variables& variables, Environment& found) {
  const auto* address = find(variables, "MASTER_ADDR");
  const auto* port = find(variables, "MASTER_PORT");
  if (!address || !port) return false;
  found.master_addr = *address;
  found.master_port = port_number(*port);
  return true;
}

std::string missing_of(const Variables& variables, const std::vector<std::string>& names) {
  std::vector<std::string> missing;
  for (const auto& name : names)
    if (!find(variables, name)) missing.push_back(name);
  return join(missing, ", ");
}

void check_ranks(const Environment& found, const std::string& rank_name, const std::string& world_name) {
  if (found.world_size == 0)
    throw Error(ErrorCode::kConfig, formatted("{} is 0: a world has at least one rank", world_name), kHowToStart);
  if (found.rank >= found.world_size)
    throw Error(ErrorCode::kConfig,
                formatted("{} is {} and {} is {}: ranks count from 0 to {} - 1", rank_name, found.rank, world_name,
                          found.world_size, world_name),
                kHowToStart);
  if (found.local_rank && *found.local_rank > found.rank)
    throw Error(ErrorCode::kConfig,
                formatted("the local rank is {} and {} is {}: the rank on one machine cannot be above the rank in the world",
                          *found.local_rank, rank_name, found.rank),
                kHowToStart);
}

// Sets the address where the ranks meet: from the environment, from a launcher that names rank 0's
// machine or started all ranks here (the port follows from the job), or by an exchange.
void find_master(const Variables& variables, const Claim& claim, const std::function<std::string(const std::string&)>& process_of,
                 Environment& found) {
  found.job = claim.job.empty() && claim.on_one_machine ? process_of(claim.variables[0]) : claim.job;
  if (read_master(variables, found)) return;
  const auto* port = find(variables, "MASTER_PORT");
  if (claim.on_one_machine) {
    found.master_addr = "127.0.0.1";
    found.master_port = port ? port_number(*port) : found.job.empty() ? kDefaultPort : port_of_job(found.job);
    return;
  }
  if (!claim.master_addr.empty() && !claim.master_port.empty()) {
    found.master_addr = claim.master_addr;
    found.master_port = static_cast<uint16_t>(number("PET_MASTER_PORT", claim.master_port, 65535, kHowToStart));
    return;
  }
  if (!claim.first_host.empty() && !found.job.empty()) {
    const auto* address = find(variables, "MASTER_ADDR");
    found.master_addr = address ? *address : claim.first_host;
    found.master_port = port ? port_number(*port) : port_of_job(found.job);
    return;
  }
  if (can_exchange(variables)) {
    found.exchanges = true;
    if (port) found.master_port = port_number(*port);
    return;
  }
  throw Error(
      ErrorCode::kConfig,
      formatted("{} started this as rank {} of {}, but {} of the environment are not set, so the ranks cannot find one another",
                claim.launcher, found.rank, found.world_size, missing_of(variables, {"MASTER_ADDR", "MASTER_PORT"})),
      "export MASTER_ADDR (a name or address of the machine that rank 0 runs on) and MASTER_PORT (a free port there)");
}

// Takes rank and world size from the first launcher with a complete claim. Throws if a launcher
// started several processes that cannot be joined.
void from_launchers(const Variables& variables, bool address_known,
                    const std::function<std::string(const std::string&)>& process_of, Environment& found) {
  const auto all = claims(variables);
  for (const Claim& claim : all) {
    if (!claim.rank || !claim.size || !claim.why_not.empty()) continue;
    found.rank = *claim.rank;
    found.world_size = *claim.size;
    found.local_rank = claim.local_rank;
    check_ranks(found, claim.variables[0], claim.variables.size() > 1 ? claim.variables[1] : "its world size");
    if (found.world_size == 1) break;
    found.discovered = formatted("{} and {} of {}", claim.variables[0], claim.variables[1], claim.launcher);
    if (!address_known) find_master(variables, claim, process_of, found);
    return;
  }
  for (const Claim& claim : all)
    if (claim.is_one_of_several())
      throw Error(
          ErrorCode::kConfig,
          formatted("{}, and this process cannot join the others: {}", claim.text(),
                    !claim.why_not.empty() ? claim.why_not
                    : claim.size           ? "another launcher's variables say that it is alone"
                                           : "no variable says how many they are"),
          claim.started_from_here
              ? formatted("start the processes with `gannet run --num_procs {} PROGRAM` or with torchrun; to train with one "
                          "process: {}",
                          *claim.size, claim.without("PROGRAM"))
              : formatted("set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each of them; where each is to train alone: {}",
                          claim.without("PROGRAM")));
  if (found.discovered.empty())
    found.discovered = all.empty() ? "RANK is not set: one process" : formatted("{}: one process", all[0].launcher);
}

// Throws if RANK and WORLD_SIZE describe a world of one, but a launcher started several processes:
// no rank may train alone by mistake.
void check_that_it_is_alone(const Variables& variables) {
  const auto claim = claim_of_several(variables);
  if (!claim) return;
  throw Error(ErrorCode::kConfig, formatted("RANK and WORLD_SIZE say that this process is alone, but {}", claim->text()),
              formatted("set RANK and WORLD_SIZE for all of them, or unset both; where each is to train alone: {}",
                        claim->without("PROGRAM")));
}

// RANK, WORLD_SIZE and their kin, or the arguments of init_distributed in place of the first two.
// Returns whether any of them is given.
bool from_variables(const Variables& variables, const Overrides& overrides, bool address_known, Environment& found) {
  const bool told = overrides.rank || overrides.world_size;
  const auto* rank = find(variables, "RANK");
  const auto* world = find(variables, "WORLD_SIZE");
  const auto* local = find(variables, "LOCAL_RANK");
  if (!told && !rank && !world && !local) return false;
  if (!(rank || overrides.rank) || !(world || overrides.world_size)) {
    std::vector<std::string> missing;
    if (!rank && !overrides.rank) missing.push_back("RANK");
    if (!world && !overrides.world_size) missing.push_back("WORLD_SIZE");
    throw Error(ErrorCode::kConfig,
                formatted("{}{} not set, though {}", join(missing, " and "), missing.size() > 1 ? " are" : " is",
                          told    ? "the call of init_distributed gives the other"
                          : rank  ? "RANK is"
                          : world ? "WORLD_SIZE is"
                                  : "LOCAL_RANK is"),
                kHowToStart);
  }
  const auto chosen = [](const char* name, const std::optional<int>& given, const std::string* text) {
    return number(name, given ? std::to_string(*given) : *text, kMostRanks, kHowToStart);
  };
  found.rank = chosen("RANK", overrides.rank, rank);
  found.world_size = chosen("WORLD_SIZE", overrides.world_size, world);
  if (local && !overrides.rank) found.local_rank = number("LOCAL_RANK", *local, kMostRanks, kHowToStart);
  check_ranks(found, "RANK", "WORLD_SIZE");
  if (const auto* local_size = find(variables, "LOCAL_WORLD_SIZE");
      local_size && found.local_rank && *found.local_rank >= number("LOCAL_WORLD_SIZE", *local_size, kMostRanks, kHowToStart))
    throw Error(ErrorCode::kConfig, formatted("LOCAL_RANK is {} and LOCAL_WORLD_SIZE is {}", *local, *local_size), kHowToStart);
  if (found.world_size > 1 && !address_known && !read_master(variables, found))
    throw Error(ErrorCode::kConfig,
                formatted("this is rank {} of {}, but {} of the environment is not set", found.rank, found.world_size,
                          missing_of(variables, {"MASTER_ADDR", "MASTER_PORT"})),
                kHowToStart);
  if (found.world_size == 1 && !told) check_that_it_is_alone(variables);
  found.discovered = told ? "the call of init_distributed" : "RANK and WORLD_SIZE of the environment";
  return true;
}

}  // namespace

Environment discover(const Variables& variables, const Overrides& overrides,
                     const std::function<std::string(const std::string&)>& process_of) {
  Environment found;
  bool address_known = false;
  if (!overrides.init_method.empty() && overrides.init_method != "env://") {
    if (overrides.init_method.rfind("tcp://", 0) != 0)
      throw Error(ErrorCode::kConfig, formatted("init_method is '{}'", overrides.init_method),
                  "it is env:// (the default) or tcp://host:port");
    parse_address(overrides.init_method.substr(6), formatted("init_method '{}'", overrides.init_method), found);
    address_known = true;
  }
  if (const auto* agent = find(variables, "TORCHELASTIC_USE_AGENT_STORE"); agent && lower(*agent) == "true" && !address_known) {
    found.agent_store = true;
  }
  if (const auto* restart = find(variables, "GANNET_RESTART")) found.is_restarted = *restart != "0";
  if (const auto* run = find(variables, "GANNET_RUN_ID")) found.run = *run;

  if (!from_variables(variables, overrides, address_known, found)) from_launchers(variables, address_known, process_of, found);

  if (found.world_size > 1 && found.master_port == 0 && !found.exchanges)
    throw Error(ErrorCode::kConfig,
                formatted("MASTER_PORT is 0: {} ranks must know the port that rank 0 serves at", found.world_size),
                "choose a free port, as 29500, the same on all ranks");
  return found;
}

std::chrono::milliseconds time_out(const Variables& variables, const std::optional<double>& seconds) {
  if (seconds) {
    if (!(*seconds > 0 && *seconds < 1e9))
      throw Error(ErrorCode::kArgument, formatted("timeout_seconds is {}", *seconds), "give a number of seconds above 0");
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
