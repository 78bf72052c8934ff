#include "launch/placement.h"

#include <gannet/error.h>

#include <algorithm>
#include <filesystem>

#include "base/format.h"
#include "base/text.h"

namespace gannet::launch {
namespace {

std::string ranks_text(size_t first, size_t count) {
  if (count == 1) return formatted("rank {}", first);
  return formatted("ranks {} to {}", first, first + count - 1);
}

// The hostfile to read; "": none.
std::string hostfile_of(const PlacementOptions& options, const std::optional<control::Claim>& claim) {
  if (!options.hosts.hostfile.empty()) return options.hosts.hostfile;
  const bool is_node = options.node.rank || options.no_ssh || claim;
  return !is_node && std::filesystem::exists(options.default_hostfile) ? options.default_hostfile : "";
}

// --no_ssh with a hostfile: the same command on every host, except for --node_rank.
Placement node_of_hostfile(const PlacementOptions& options, const std::vector<Host>& hosts, const control::Variables& variables) {
  if (!options.node.rank)
    throw Error(ErrorCode::kArgument, "--no_ssh with a hostfile, and no --node_rank",
                formatted("give the number of this host in the hostfile, from 0 to {}", hosts.size() - 1));
  if (*options.node.rank >= hosts.size())
    throw Error(
        ErrorCode::kArgument,
        formatted("--node_rank {}, and {} host{} take part", *options.node.rank, hosts.size(), hosts.size() == 1 ? "" : "s"),
        formatted("hosts count from 0 to {}", hosts.size() - 1));
  NodeOptions node = options.node;
  node.count = static_cast<uint32_t>(hosts.size());
  if (node.master_addr.empty() && !control::find(variables, "MASTER_ADDR"))
    node.master_addr = hosts[0].name.substr(hosts[0].name.find('@') + 1);
  Placement placement;
  placement.node = node_of(node, variables);
  if (hosts.size() > 1 && (placement.node.master_addr == "localhost" || placement.node.master_addr.rfind("127.", 0) == 0))
    throw Error(ErrorCode::kArgument,
                formatted("the ranks of {} hosts would meet at {}, which is another machine on each", hosts.size(),
                          placement.node.master_addr),
                "give the first host the name that the others know it by, in the hostfile or with --master_addr");
  for (const Host& host : hosts) placement.node.procs_of_nodes.push_back(static_cast<uint32_t>(host.slots.size()));
  placement.slots = hosts[*node.rank].slots;
  placement.procs = static_cast<uint32_t>(placement.slots.size());
  return placement;
}

}  // namespace

Placement place(const PlacementOptions& options, const control::Variables& variables, uint32_t devices) {
  const std::optional<control::Claim> claim = control::claim_of_several(variables);
  const std::string hostfile = hostfile_of(options, claim);
  const bool has_filter = !options.hosts.include.empty() || !options.hosts.exclude.empty();
  std::vector<Host> hosts;
  std::vector<std::string> notes;
  if (!hostfile.empty()) {
    const std::vector<Host> listed = read_hostfile(hostfile);
    for (const Host& host : listed)
      if (host.slots.empty()) notes.push_back(formatted("{} has slots=0 in {}, and takes no part", host.name, hostfile));
    hosts = chosen_hosts(listed, options.hosts);
  }
  if (!options.launcher.empty() && options.launcher != "ssh" && options.launcher != "pdsh") {
    if (hosts.empty() && options.hosts.nodes)
      for (uint32_t i = 0; i < *options.hosts.nodes; ++i)
        hosts.push_back({formatted("HOST{}", i), slots_up_to(std::max(1u, options.hosts.procs))});
    refuse_launcher(options.launcher, hosts, options.command);
  }
  if (!hostfile.empty() && claim && !options.node.rank)
    throw Error(ErrorCode::kConfig, formatted("{}, and a hostfile: each of these launchers would start all hosts", claim->text()),
                formatted("leave --hostfile out: each gannet run then starts the ranks of its own machine; where the variables "
                          "are left over: {}",
                          claim->without("gannet run ...")));
  if (!hostfile.empty() && options.no_ssh) return node_of_hostfile(options, hosts, variables);
  Placement placement;
  placement.notes = std::move(notes);
  if (options.launcher == "pdsh")
    placement.notes.push_back("--launcher pdsh: by ssh, whose end ends the ranks, which pdsh cannot tell");
  if (!hostfile.empty()) {
    if (options.node.rank)
      throw Error(ErrorCode::kArgument, "--node_rank with a hostfile",
                  "add --no_ssh to start only this host's ranks, or leave --node_rank out");
    if (options.hosts.hostfile.empty()) placement.notes.push_back(formatted("the hosts of {}", hostfile));
    placement.hosts = hosts;
    return placement;
  }
  if (options.hosts.nodes.value_or(1) > 1 && !options.node.rank && !claim && !options.no_ssh)
    throw Error(ErrorCode::kArgument,
                formatted("--num_nodes {}, and nothing says which hosts these are: there is no {}", *options.hosts.nodes,
                          options.default_hostfile),
                "give --hostfile FILE; or run it on each: gannet run --num_procs N --num_nodes NODES --node_rank R --master_addr "
                "HOST PROGRAM");
  NodeOptions node = options.node;
  node.count = options.hosts.nodes;
  placement.node = node_of(node, variables);
  if (options.no_ssh && placement.node.count == 1 && !node.count)
    throw Error(
        ErrorCode::kArgument, "--no_ssh without --num_nodes or --hostfile",
        "give --num_nodes N --node_rank R --master_addr HOST, or leave --no_ssh out: without a hostfile nothing uses ssh");
  const uint32_t told = placement.node.procs.value_or(0);
  if (has_filter) {
    placement.slots = chosen_slots(devices, options.hosts);
    placement.procs = static_cast<uint32_t>(placement.slots.size());
  } else if (options.hosts.procs || told) {
    placement.procs = std::max(options.hosts.procs, told);
  } else {
    placement.procs = std::max(1u, devices);
    placement.notes.push_back(devices > 1 ? formatted("{} ranks, one for each device; --num_gpus N starts fewer", devices)
                                          : "one rank; --num_gpus N or --num_procs N starts more");
  }
  if (told && told != placement.procs)
    throw Error(ErrorCode::kArgument, formatted("{} ranks are asked for, and PET_NPROC_PER_NODE is {}", placement.procs, told),
                "leave one of the two out");
  return placement;
}

std::string text_of(const Placement& placement, const std::vector<std::string>& command) {
  std::vector<std::string> words;
  for (const std::string& word : command) words.push_back(shell_word(word));
  std::string text;
  size_t first = 0, width = 0;
  for (const Host& host : placement.hosts) width = std::max(width, host.name.size());
  for (const Host& host : placement.hosts) {
    text += formatted("{}{}  {}, slot{} {}\n", host.name, std::string(width - host.name.size(), ' '),
                      ranks_text(first, host.slots.size()), host.slots.size() == 1 ? "" : "s", text_of(host.slots));
    first += host.slots.size();
  }
  if (placement.hosts.empty()) {
    const Node& node = placement.node;
    const auto& each = node.procs_of_nodes;
    for (uint32_t i = 0; i < node.index; ++i) first += each.empty() ? placement.procs : each[i];
    text += node.count > 1 ? formatted("this machine, node {} of {}: ", node.index, node.count) : "this machine: ";
    text += ranks_text(first, placement.procs);
    if (!placement.slots.empty())
      text += formatted(", slot{} {}", placement.slots.size() == 1 ? "" : "s", text_of(placement.slots));
    if (node.count > 1) text += formatted("; they meet at {}:{}", node.master_addr, node.master_port);
    text += '\n';
  }
  return text + formatted("each rank: {}\n", join(words, " "));
}

}  // namespace gannet::launch
