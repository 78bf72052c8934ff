#include "launch/node.h"

#include <gannet/error.h>

#include "base/format.h"
#include "base/text.h"
#include "control/address_exchange.h"
#include "control/environment.h"

namespace gannet::launch {
namespace {

using control::Claim;
using control::find;
using control::Variables;

// DeepSpeed's default port.
constexpr uint32_t kDefaultPort = 29500;
constexpr const char* kByHand =
    "run on every machine: gannet run --num_procs N --num_nodes NODES --node_rank R --master_addr HOST PROGRAM, with R from 0 "
    "and "
    "HOST the machine of node 0";

uint32_t number_in(const Variables& variables, const char* name, uint32_t most) {
  return control::number(name, *find(variables, name), most, "it is set by the launcher of the nodes, or exported by hand");
}

// Whether the claim is Kubeflow's for torchrun, which gannet run replaces on each node.
bool is_node_of_torchrun(const Claim& claim, const Variables& variables) {
  const std::string* const nodes = find(variables, "PET_NNODES");
  return claim.variables[0] == "PET_NNODES" && nodes->find(':') == std::string::npos && find(variables, "PET_NODE_RANK");
}

// Kubeflow also sets RANK (the pod's) and WORLD_SIZE (all processes); torchrun does not read them.
std::optional<Claim> claim_of_this(const Variables& variables) {
  for (const Claim& claim : control::claims(variables))
    if (claim.is_one_of_several() && is_node_of_torchrun(claim, variables)) return claim;
  return control::claim_of_several(variables);
}

Node from_claim(const Claim& claim, const Variables& variables) {
  const bool replaces_torchrun = is_node_of_torchrun(claim, variables);
  if (!replaces_torchrun && !(claim.is_one_a_machine && claim.rank))
    throw Error(ErrorCode::kConfig,
                formatted("{}, and gannet run starts all ranks of a machine: each of these launchers would train by itself",
                          claim.text()),
                formatted("let that launcher start PROGRAM, one process for each rank, or one gannet run on each machine (srun "
                          "--ntasks-per-node=1, mpirun --map-by ppr:1:node); where each is to be a run of its own: {}",
                          claim.without("gannet run ...")));
  Variables one_a_node = variables;
  if (replaces_torchrun)
    for (const char* name : {"PET_NPROC_PER_NODE", "RANK", "WORLD_SIZE", "LOCAL_RANK"}) one_a_node.erase(name);
  control::Environment found = control::discover(one_a_node, {});
  if (found.exchanges) control::find_rank_zero(one_a_node, found);
  Node node{.index = found.rank,
            .count = found.world_size,
            .master_addr = found.master_addr,
            .master_port = found.master_port,
            .told_by = claim.launcher};
  const std::string* const procs = find(variables, "PET_NPROC_PER_NODE");
  if (replaces_torchrun && procs && procs->find_first_not_of("0123456789") == std::string::npos)
    node.procs = number_in(variables, "PET_NPROC_PER_NODE", 4096);
  return node;
}

// The number that a launcher gave this node, if it started one process on each of `count` machines.
std::optional<uint32_t> index_in(const std::optional<Claim>& claim, uint32_t count) {
  if (!claim || !claim->rank) return std::nullopt;
  const bool is_node = claim->is_one_a_machine ? claim->size == count : claim->variables[0] == "JOB_COMPLETION_INDEX";
  return is_node ? claim->rank : std::nullopt;
}

Node from_options(const NodeOptions& options, const std::optional<Claim>& claim, const Variables& variables) {
  const uint32_t count = *options.count;
  const std::optional<uint32_t> index = options.rank ? options.rank : index_in(claim, count);
  if (!index)
    throw Error(ErrorCode::kArgument, formatted("--num_nodes {}, and nothing says which of them this is", count), kByHand);
  if (*index >= count)
    throw Error(ErrorCode::kArgument, formatted("this is node {} of {}", *index, count),
                formatted("nodes count from 0 to {}", count - 1));
  Node node{.index = *index, .count = count, .told_by = options.rank ? "--node_rank" : claim->launcher};
  const std::string *address = find(variables, "MASTER_ADDR"), *port = find(variables, "MASTER_PORT");
  node.master_addr = address ? *address : claim ? claim->first_host : "";
  if (options.master_addr.empty() && node.master_addr.empty())
    throw Error(ErrorCode::kArgument, formatted("node {} of {} does not know the machine of node 0", *index, count),
                "name it on every node: --master_addr HOST, or MASTER_ADDR in the environment");
  node.master_port = port                           ? number_in(variables, "MASTER_PORT", 65535)
                     : claim && !claim->job.empty() ? control::port_of_job(claim->job)
                                                    : kDefaultPort;
  return node;
}

}  // namespace

Node node_of(const NodeOptions& options, const Variables& variables) {
  if (options.rank && !options.count)
    throw Error(ErrorCode::kArgument, formatted("--node_rank {} without --num_nodes", *options.rank), kByHand);
  const std::optional<Claim> claim = claim_of_this(variables);
  Node node;
  if (options.count.value_or(1) > 1 || options.rank)
    node = from_options(options, claim, variables);
  else if (claim)
    node = from_claim(*claim, variables);
  if (options.count && node.count != *options.count)
    throw Error(ErrorCode::kArgument, formatted("--num_nodes {}, but {}", *options.count, claim->text()),
                "leave --num_nodes out, or start one process on each of as many machines");
  if (!options.master_addr.empty()) node.master_addr = options.master_addr;
  if (options.master_port) node.master_port = options.master_port;
  return node;
}

}  // namespace gannet::launch
