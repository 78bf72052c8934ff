#include "launch/hosts.h"

#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "launch/filters.h"

namespace gannet::launch {
namespace {

void refuse_filters_beside_counts(const HostOptions& options) {
  if (options.include.empty() && options.exclude.empty()) return;
  if (!options.nodes && !options.procs) return;
  throw Error(ErrorCode::kArgument,
              formatted("{} beside {}", options.include.empty() ? "--exclude" : "--include",
                        options.nodes ? "--num_nodes" : "--num_gpus or --num_procs"),
              "give only the filter: the hosts and slots that it leaves are the counts");
}

[[noreturn]] void refuse_nothing_left(const HostOptions& options) {
  throw Error(ErrorCode::kArgument,
              options.include.empty() && options.exclude.empty()
                  ? std::string("no host of the hostfile has a slot")
                  : formatted("{} leaves no slot of any host", options.include.empty() ? "--exclude" : "--include"),
              "a run needs one slot at least");
}

size_t total(const std::vector<Host>& hosts) {
  size_t sum = 0;
  for (const Host& host : hosts) sum += host.slots.size();
  return sum;
}

// "a:4,b:2"
std::string with_counts(const std::vector<Host>& hosts) {
  std::vector<std::string> texts;
  for (const Host& host : hosts) texts.push_back(formatted("{}:{}", host.name, host.slots.size()));
  return join(texts, ",");
}

}  // namespace

std::string shell_word(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char letter : word) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

std::vector<Host> chosen_hosts(const std::vector<Host>& hosts, const HostOptions& options) {
  refuse_filters_beside_counts(options);
  std::vector<Host> chosen = filtered(hosts, options.include, options.exclude);
  if (options.nodes) {
    if (*options.nodes > chosen.size())
      throw Error(ErrorCode::kArgument,
                  formatted("--num_nodes {}, and the hostfile has {} host{}", *options.nodes, chosen.size(),
                            chosen.size() == 1 ? "" : "s"),
                  "add hosts to it, or ask for fewer");
    chosen.resize(*options.nodes);
  }
  if (options.procs)
    for (Host& host : chosen) {
      if (options.procs > host.slots.size())
        throw Error(
            ErrorCode::kArgument,
            formatted("{} ranks on each host, and {} has {} slot{}", options.procs, host.name, host.slots.size(),
                      host.slots.size() == 1 ? "" : "s"),
            "raise slots= in the hostfile, or leave --num_gpus and --num_procs out: each host then runs as many as it has slots");
      host.slots.resize(options.procs);
    }
  if (chosen.empty()) refuse_nothing_left(options);
  return chosen;
}

std::vector<uint32_t> chosen_slots(uint32_t devices, const HostOptions& options) {
  refuse_filters_beside_counts(options);
  if (devices == 0 && !options.exclude.empty())
    throw Error(ErrorCode::kArgument, "--exclude, and this machine has no device that could be counted",
                "name the devices with --include localhost:SLOT,SLOT, or the number of ranks with --num_procs");
  if (devices == 0 && options.include == "localhost")
    throw Error(ErrorCode::kArgument, "--include localhost, and this machine has no device that could be counted",
                "name its slots: --include localhost:0,1; or the number of ranks with --num_procs");
  const std::vector<Host> left = filtered({{"localhost", slots_up_to(devices)}}, options.include, options.exclude, devices == 0);
  if (left.empty()) refuse_nothing_left(options);
  return left[0].slots;
}

void refuse_launcher(const std::string& name, const std::vector<Host>& hosts, const std::vector<std::string>& command) {
  std::vector<std::string> words, names;
  for (const std::string& word : command) words.push_back(shell_word(word));
  for (const Host& host : hosts) names.push_back(host.name);
  const std::string program = words.empty() ? "PROGRAM" : join(words, " ");
  const bool are_alike =
      std::all_of(hosts.begin(), hosts.end(), [&](const Host& host) { return host.slots.size() == hosts[0].slots.size(); });
  const size_t nodes = hosts.empty() ? 1 : hosts.size(), ranks = hosts.empty() ? 1 : total(hosts);
  const size_t each = hosts.empty() ? 1 : hosts[0].slots.size();
  std::string line;
  if (name == "slurm") {
    const std::string list = names.empty() ? "" : formatted(" --nodelist {}", join(names, ","));
    line = are_alike ? formatted("srun --nodes {}{} --ntasks-per-node 1 gannet run --num_procs {} {}", nodes, list, each, program)
                     : formatted("srun --nodes {}{} --ntasks {} {}", nodes, list, ranks, program);
  } else if (name == "openmpi") {
    line = formatted("mpirun -np {}{} {}", ranks, hosts.empty() ? "" : formatted(" --host {}", with_counts(hosts)), program);
  } else if (name == "mpich") {
    line = formatted("mpirun -n {}{} {}", ranks, hosts.empty() ? "" : formatted(" -hosts {}", with_counts(hosts)), program);
  } else if (name == "impi" || name == "mvapich") {
    line = formatted("mpirun -n {} -ppn {}{} {}", ranks, each, hosts.empty() ? "" : formatted(" -hosts {}", join(names, ",")),
                     program);
  } else if (name == "kubernetes") {
    line = formatted(
        "gannet run --num_procs {} --num_nodes {} --master_addr HOST {} as the command of an indexed job's pods; docs/cluster.md "
        "has it whole",
        each, nodes, program);
  } else {
    throw Error(ErrorCode::kArgument,
                formatted("--launcher: nothing is called '{}'{}", printable(name),
                          did_you_mean(name, {"slurm", "openmpi", "mpich", "impi", "mvapich", "pdsh", "ssh", "kubernetes"})),
                "leave it out: gannet run uses ssh");
  }
  throw Error(ErrorCode::kUnsupported, formatted("--launcher {}: gannet run is started by it, and does not start it", name),
              line);
}

}  // namespace gannet::launch
