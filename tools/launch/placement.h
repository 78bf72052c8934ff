// Where a `gannet run` places its ranks: on this machine, on it as one node of several, or on the
// hosts of a hostfile. Computed from the options and the environment, before anything is started.
#pragma once

#include <string>
#include <vector>

#include "launch/hosts.h"
#include "launch/node.h"

namespace gannet::launch {

struct PlacementOptions {
  HostOptions hosts = {};
  NodeOptions node = {};  // its count comes from `hosts`
  bool no_ssh = false;
  std::string launcher = {};  // --launcher
  std::vector<std::string> command = {};
  std::string default_hostfile = kDefaultHostfile;
};

struct Placement {
  std::vector<Host> hosts = {};  // with agents started over ssh; empty: the ranks are this launcher's own
  Node node = {};                // without hosts: this node of several; `procs` and `slots` are this machine's
  uint32_t procs = 1;
  std::vector<uint32_t> slots = {};     // empty: not chosen
  std::vector<std::string> notes = {};  // lines to print before the start
};

// `devices`: this machine's device count (launch/devices.h); by default one rank for each. Throws
// Error(kArgument, kConfig, kNotFound, kUnsupported).
Placement place(const PlacementOptions& options, const control::Variables& variables, uint32_t devices);

// The output of --dry-run: each host's ranks and slots, and the command.
std::string text_of(const Placement& placement, const std::vector<std::string>& command);

}  // namespace gannet::launch
