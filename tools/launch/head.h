// `gannet run` on several hosts: starts an agent on each over ssh (launch/agent.h), starts ranks
// once all are ready, merges output, forwards signals, and finds a failure's cause among all hosts.
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

struct HeadNode;

struct HeadOptions {
  std::vector<Host> hosts;  // in the order of the ranks
  LaunchOptions options;    // for every host, apart from the slots
  std::string master_addr;  // "": an address of the first host that the others can reach
  SshOptions ssh;
  Exports exports = {};  // sent to every host, even variables that describe a machine
};

// The body of `gannet run --hostfile`. Throws as run() does (launch/launch.h).
int run_on_hosts(const HeadOptions& options, std::chrono::milliseconds failure_grace = std::chrono::seconds(5));

class Head {
 public:
  Head(const HeadOptions& options, std::chrono::milliseconds failure_grace, Session& session);
  ~Head();
  // One attempt on all hosts; agents that are still connected are reused.
  AttemptOutcome run(uint32_t restart);
  // One iteration: waits, writes, reads, handles frames. Between attempts, keeps the agents alive.
  void exchange();

 private:
  using Clock = std::chrono::steady_clock;
  // Defined in head_start.cpp.
  std::string plan_for(size_t index) const;
  void connect(size_t index);
  bool is_turned_away(HeadNode& node) const;
  bool start_agents();
  bool start_agents_patiently();
  bool stop_has_come();
  void check_machines();
  AttemptOutcome refused() const;
  void go(uint32_t restart);
  // Defined in head.cpp.
  void beat();
  void take_all(HeadNode& node, bool may_read = true);
  void take(HeadNode& node, const Frame& frame);
  void take_signals();
  void notice_lost(HeadNode& node);
  void notice_silence(HeadNode& node);
  void lose(HeadNode& node, const std::string& how);
  void take_outcome(HeadNode& node, AttemptOutcome outcome);
  void end_the_others();
  bool is_running(const HeadNode& node) const;
  bool all_over() const;
  AttemptOutcome judge() const;
  static std::string ranks_text(const HeadNode& node);

  const HeadOptions& options_;
  const std::chrono::milliseconds failure_grace_;
  Session& session_;
  const std::string build_, folder_;
  const std::vector<std::string> environment_;
  std::vector<std::unique_ptr<HeadNode>> nodes_;
  std::vector<const HeadNode*> ended_;  // in the order in which they ended
  int stopped_by_ = 0, stops_ = 0;
  bool has_failed_ = false;
  std::optional<Clock::time_point> fail_at_;  // when to end the ranks of the other hosts
  Clock::time_point beaten_ = Clock::now();
};

}  // namespace gannet::launch
