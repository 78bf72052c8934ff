// `gannet run` on several hosts: starts an agent on each by ssh (launch/agent.h), lets all start together once none has
// an objection, merges their output, forwards signals, and judges over all of them why a run has failed.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/connection.h"
#include "launch/env_file.h"
#include "launch/hostfile.h"
#include "launch/launch.h"
#include "launch/supervise.h"

namespace gannet::launch {

struct HeadOptions {
  std::vector<Host> hosts;  // in the order of the ranks
  LaunchOptions options;    // for each host but for its own slots
  std::string master_addr;  // "": the address of the first host that another one reaches
  SshOptions ssh;
  Exports exports = {};  // variables that every host gets, whatever they describe
};

// The body of `gannet run --hostfile`. Throws as run() does (launch/launch.h).
int run_on_hosts(const HeadOptions& options, std::chrono::milliseconds failure_grace = std::chrono::seconds(5));

class Head {
 public:
  Head(const HeadOptions& options, std::chrono::milliseconds failure_grace, Session& session);
  ~Head();
  // One attempt over all hosts; agents that are still there are used again.
  AttemptOutcome run(uint32_t restart);

 private:
  using Clock = std::chrono::steady_clock;
  struct Node;
  bool start_agents();
  bool start_agents_patiently();
  AttemptOutcome refused() const;
  void go(uint32_t restart);
  void beat();
  void exchange();
  void take(Node& node, const Frame& frame);
  void take_signals();
  void notice_lost(Node& node);
  void notice_silence(Node& node);
  void lose(Node& node, const std::string& how);
  void take_outcome(Node& node, AttemptOutcome outcome);
  void end_the_others();
  void check_machines();
  bool is_running(const Node& node) const;
  bool all_over() const;
  AttemptOutcome judge() const;
  static std::string ranks_text(const Node& node);
  std::string plan_for(size_t index) const;

  const HeadOptions& options_;
  const std::chrono::milliseconds failure_grace_;
  Session& session_;
  const std::string build_, folder_;
  const std::vector<std::string> environment_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<const Node*> ended_;  // in the order of their ends
  int stopped_by_ = 0, stops_ = 0;
  bool has_failed_ = false;
  std::optional<Clock::time_point> fail_at_;  // when to end the ranks of the other hosts
  Clock::time_point beaten_ = Clock::now();
};

}  // namespace gannet::launch
