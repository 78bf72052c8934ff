// The messages between `gannet run` and an agent, as values: what the agent must start, whether it
// can start it, and how the ranks ended.
#pragma once

#include <string>
#include <vector>

#include "launch/attempt.h"
#include "launch/plan.h"

namespace gannet::launch {

struct NodePlan {
  std::string build;   // the head's build_id(), which must equal the agent's
  std::string folder;  // the ranks' working folder
  LaunchOptions options;
  int64_t failure_grace_ms = 5000;
  uint32_t file_mask = 022;  // umask
};
std::string packed(const NodePlan& plan);
NodePlan node_plan_in(const std::string& body);

// From an agent that can start: where it can be reached if it has rank 0, and which machine it is.
struct Readiness {
  std::string place;  // control::own_place: its name and addresses, and a free port
  std::string machine;
};
std::string packed(const Readiness& readiness);
Readiness readiness_in(const std::string& body);

struct Refusal {
  int code = 3;  // the program's, if that is the obstacle: 126, 127
  std::string why;
};
std::string packed(const Refusal& refusal);
Refusal refusal_in(const std::string& body);

struct Go {
  uint32_t restart = 0;
  std::string place;    // of rank 0's agent
  std::string address;  // --master_addr; "": the one in `place` that this host can reach
  uint32_t port = 0;
};
std::string packed(const Go& go);
Go go_in(const std::string& body);

std::string packed(const AttemptOutcome& outcome);
AttemptOutcome outcome_in(const std::string& body);

// Version and checksum of this executable: hosts with equal ids run the same launcher.
std::string build_id();

// The variables to send to other hosts: all but those that describe this machine or this login.
std::vector<std::string> environment_to_send(const std::vector<std::string>& environment);
// The agent's own environment, overridden by `sent`.
std::vector<std::string> merged_environment(const std::vector<std::string>& own, const std::vector<std::string>& sent);

}  // namespace gannet::launch
