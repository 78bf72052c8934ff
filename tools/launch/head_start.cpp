// Starts a run on several hosts: one agent each; waits until all are ready or one cannot take part.
#include <gannet/error.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "base/format.h"
#include "base/text.h"
#include "launch/head.h"
#include "launch/head_link.h"
#include "launch/head_node.h"

namespace gannet::launch {
namespace {

// ssh itself ends after 8 s if a host does not answer; this limit is for hosts that accept the connection and then hang.
constexpr std::chrono::seconds kMostForAnAgent{30};
constexpr std::chrono::seconds kForARestart{300};  // a machine may take minutes to boot
constexpr int kMostTries = 6;

}  // namespace

std::string Head::plan_for(size_t index) const {
  NodePlan plan;
  plan.build = build_;
  plan.folder = folder_;
  plan.options = options_.options;
  plan.options.procs = static_cast<uint32_t>(options_.hosts[index].slots.size());
  plan.options.slots = options_.hosts[index].slots;
  plan.options.node.index = static_cast<uint32_t>(index);
  plan.options.node.count = static_cast<uint32_t>(options_.hosts.size());
  for (const Host& host : options_.hosts) plan.options.node.procs_of_nodes.push_back(static_cast<uint32_t>(host.slots.size()));
  plan.options.environment = environment_;
  plan.failure_grace_ms = failure_grace_.count();
  plan.file_mask = umask(0);
  umask(plan.file_mask);
  return packed(plan);
}

// SIGUSR1 counts as well: no rank is running yet that could save on it.
bool Head::stop_has_come() {
  for (Signal signal; session_.next(signal);)
    if (Signals::is_stop(signal.number) || signal.number == SIGUSR1) {
      stopped_by_ = signal.number;
      return true;
    }
  return false;
}

void Head::connect(size_t index) {
  HeadNode& node = *nodes_[index];
  node.next_try.reset();
  node.readiness.reset();
  node.refusal.clear();
  node.refusal_code = 3;
  node.connection = std::make_unique<Connection>(agent_command(node.host.name, node.is_here, options_.ssh));
  node.connection->send(FrameKind::kPlan, plan_for(index));
  node.started = node.heard = Clock::now();
  ++node.tries;
}

// Whether sshd has closed the connection before the login, as it does at random beyond its MaxStartups. Hosts behind one
// jump host share that limit.
bool Head::is_turned_away(HeadNode& node) const {
  const std::string& errors = node.connection->errors();
  return node.tries < kMostTries && node.connection->exit_code() == 255 &&
         (errors.find("kex_exchange_identification") != std::string::npos ||
          errors.find("Connection reset by") != std::string::npos || errors.find("Connection closed by") != std::string::npos);
}

// Starts the missing agents, and waits until each is ready or has refused. False on a stop signal.
bool Head::start_agents() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    HeadNode& node = *nodes_[i];
    node.outcome.reset();
    node.tries = 0;
    if (node.connection) take_all(node);  // so that an end that was already sent is noticed
    if (node.connection && node.connection->has_ended()) node.connection.reset();
    if (!node.connection) connect(i);
    beat();  // starting many takes longer than the heartbeat interval
  }
  const auto waits = [&](const auto& node) {
    return node->next_try || (node->connection && !node->readiness && node->refusal.empty());
  };
  while (std::any_of(nodes_.begin(), nodes_.end(), waits)) {
    exchange();
    for (size_t i = 0; i < nodes_.size(); ++i) {
      HeadNode& node = *nodes_[i];
      if (!waits(nodes_[i])) continue;
      if (node.next_try) {
        if (Clock::now() >= *node.next_try) connect(i);
        continue;
      }
      Connection& connection = *node.connection;
      const bool has_ended = connection.has_ended();
      if (has_ended && is_turned_away(node)) {
        node.connection.reset();
        node.next_try = Clock::now() + std::chrono::seconds(1);
      } else if (!connection.foreign().empty() || has_ended) {
        node.refusal =
            why_no_agent(node.host.name, options_.ssh, connection.exit_code(), connection.errors(), connection.foreign());
      } else if (Clock::now() - node.started > kMostForAnAgent) {
        node.refusal = formatted("{}: no agent has answered in {}. Next: try ssh {}", node.host.name, in_seconds(kMostForAnAgent),
                                 node.host.name);
      }
    }
    if (stop_has_come()) return false;
  }
  check_machines();
  return true;
}

// Retries hosts that cannot take part for up to kForARestart: a machine that boots may refuse ssh, or lack a folder that it
// mounts later. False on a stop signal.
bool Head::start_agents_patiently() {
  const auto end = Clock::now() + kForARestart;
  for (bool has_said = false;;) {
    if (!start_agents()) return false;
    const auto is_away = [](const auto& node) { return !node->refusal.empty(); };
    if (std::none_of(nodes_.begin(), nodes_.end(), is_away) || Clock::now() > end) return true;
    for (auto& node : nodes_) {
      if (!is_away(node)) continue;
      if (!has_said) session_.output.say(formatted("{}. It is tried again for {}", node->refusal, in_seconds(kForARestart)));
      if (node->connection) node->connection->kill();
      node->connection.reset();
    }
    has_said = true;
    for (const auto next = Clock::now() + std::chrono::seconds(5); Clock::now() < next;) {
      exchange();
      if (stop_has_come()) return false;
    }
  }
}

// A machine that is listed under two names would get two ranks on each device.
void Head::check_machines() {
  if (!options_.ssh.command.empty()) return;  // containers of one machine may share its network
  std::map<std::string, const HeadNode*> seen;
  for (auto& node : nodes_) {
    if (!node->readiness) continue;
    const auto [other, is_new] = seen.emplace(node->readiness->machine, node.get());
    if (!is_new)
      node->refusal =
          formatted("{}: is the same machine as {}. Next: give each machine one line of the hostfile, with all of its slots",
                    node->host.name, other->second->host.name);
  }
}

AttemptOutcome Head::refused() const {
  std::vector<std::string> sentences;
  for (const auto& node : nodes_)
    if (!node->refusal.empty()) sentences.push_back(node->refusal);
  AttemptOutcome outcome{.code = 3, .failed = true};
  const int code = nodes_[0]->refusal_code;
  if (std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& node) { return node->refusal_code == code; }))
    outcome.code = code;
  outcome.why = formatted("{} of {} hosts cannot take part", sentences.size(), nodes_.size());
  outcome.report = formatted("{}, and no rank was started:\n    {}", outcome.why, join(sentences, "\n    "));
  outcome.no_restart = "no rank was started";
  return outcome;
}

void Head::go(uint32_t restart) {
  Go go;
  go.restart = restart;
  go.place = nodes_[0]->readiness->place;
  go.address = nodes_.size() == 1 ? "127.0.0.1" : options_.master_addr;
  go.port = options_.options.node.master_port ? options_.options.node.master_port
                                              : static_cast<uint32_t>(std::stoul(go.place.substr(go.place.rfind(':') + 1)));
  for (auto& node : nodes_) {
    node->connection->send(FrameKind::kGo, packed(go));
    node->readiness.reset();
  }
}

}  // namespace gannet::launch
