// One start of all ranks, from the first fork until nothing of them runs any more. `gannet run` makes one, and another after
// each failure that it may repeat.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/guard.h"
#include "launch/launch.h"
#include "launch/memory.h"
#include "launch/ranks.h"
#include "launch/signals.h"

namespace gannet::launch {

// What outlives an attempt.
struct Session {
  explicit Session(std::string mark) : mark(std::move(mark)), guard(this->mark) {}
  std::string mark;
  Signals signals;  // before any rank starts: no end of one is missed
  Guard guard;
};

struct Outcome {
  int code = 0;
  bool failed = false;          // false too when the ranks ended because they were asked to stop
  std::string why = {};         // "rank 1 was killed by SIGKILL (Killed)"
  std::string no_restart = {};  // the reason, where there is one
};

class Attempt {
 public:
  Attempt(const Options& options, std::chrono::milliseconds failure_grace, Session& session, uint32_t restart);
  ~Attempt();
  Outcome run();

 private:
  using Clock = std::chrono::steady_clock;
  void start();
  bool done();
  void wait();
  void take_signals();
  void signal_all(int number);
  void reap();
  void judge(Rank& rank);
  bool all_ended() const;
  std::chrono::milliseconds stop_grace() const;
  void set_deadline(std::chrono::milliseconds after, const std::string& what_they_ignored);
  void enforce_deadline();
  Outcome finish();
  Outcome finish_stop();
  void report_failure() const;
  std::vector<std::string> meanings() const;
  std::string consequences() const;
  std::string name_of(const Rank& rank) const;
  std::string end_of(const Rank& rank) const;

  const Options& options_;
  const std::chrono::milliseconds failure_grace_;
  Session& session_;
  const uint32_t restart_;
  const MemoryWatch memory_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<bool> guarded_;
  std::vector<const Rank*> ended_;  // in the order of their ends
  const Rank* first_ = nullptr;     // of those that did not end with 0: the others follow from it
  bool stop_ = false;               // first_ ended because it was asked to
  std::string why_killed_;          // first_, by SIGKILL
  int stopped_by_ = 0;
  std::set<int> forwarded_;  // signals that went on to the ranks
  int last_forwarded_ = 0;
  std::set<const Rank*> ended_by_us_;
  bool sent_term_ = false, sent_kill_ = false, asked_leftovers_ = false;
  bool gave_up_ = false;                       // what is left after SIGKILL cannot be ended
  std::optional<Clock::time_point> deadline_;  // then SIGKILL
  std::string ignored_;                        // "SIGTERM", for the line that says who is killed
  std::chrono::milliseconds patience_{0};
};

void say(const std::string& text);                       // a line of gannet run's own on stderr
std::string in_seconds(std::chrono::milliseconds time);  // "30 s", "0.5 s"

}  // namespace gannet::launch
