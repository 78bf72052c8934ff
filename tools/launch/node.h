// Determines which node of a multi-machine run this `gannet run` is. Each launcher starts its own
// ranks and knows of no other: the ranks themselves rendezvous, and end, stop and restart together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/launchers.h"

namespace gannet::launch {

struct Node {
  uint32_t index = 0, count = 1;
  std::string master_addr = "127.0.0.1";      // the machine of node 0
  uint32_t master_port = 0;                   // 0: any free one, on one machine
  std::optional<uint32_t> procs = {};         // per node, as the outer launcher requests
  std::vector<uint32_t> procs_of_nodes = {};  // ranks of each node, from a hostfile; empty: all have as many
  std::string told_by = {};                   // "--node_rank", "Slurm"; "": one machine
};

struct NodeOptions {
  std::optional<uint32_t> rank = {}, count = {};  // --node_rank, --num_nodes
  std::string master_addr = {};
  uint32_t master_port = 0;
};

/// Uses the options, or else the variables of a launcher that started one process on each machine
/// (Slurm, MPI, Kubeflow, an indexed Kubernetes job with --num_nodes). Throws Error(kArgument) for
/// invalid options, and Error(kConfig) if a launcher started this as one of several on one machine:
/// each would train the full model by itself, into the same checkpoint folder.
Node node_of(const NodeOptions& options, const control::Variables& variables);

}  // namespace gannet::launch
