// One attempt to run the program: starts all ranks and waits until every process has ended.
// `gannet run` makes a new attempt after each failure that allows a restart.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/head_link.h"
#include "launch/launch.h"
#include "launch/memory.h"
#include "launch/output.h"
#include "launch/ranks.h"
#include "launch/signals.h"

namespace gannet::launch {

// State that outlives an attempt.
struct Session {
  Session(std::string mark, int channel, Output::Way way = Output::Way::kPlain)
      : mark(std::move(mark)), signals(channel), output(way) {}
  // Gets the next signal to act on. If the front process has ended, ends all descendants and this
  // process.
  bool next(Signal& signal);
  // Waits for a signal, for the output's reader, or until `time` has passed.
  void wait(std::vector<pollfd> waiting, std::chrono::milliseconds time);
  std::string mark;
  Signals signals;  // created before any rank starts, so that no rank's end is missed
  Output output;
  HeadLink* head = nullptr;  // set only in an agent (launch/agent.h)
};

struct AttemptOutcome {
  int code = 0;
  bool failed = false;          // also false if the ranks ended because they were asked to stop
  bool was_stopped = false;     // a stop was requested, however the ranks ended
  std::string why = {};         // "rank 1 was killed by SIGKILL (Killed)"
  std::string no_restart = {};  // the reason not to restart; "": none
  std::string report = {};      // text to print; "": none
  int weight = kCode;           // among several hosts' failures, the smallest is the cause
  enum Weight { kSignal, kCode, kHostLost, kPeerLost };
};

class Attempt {
 public:
  Attempt(const LaunchOptions& options, std::chrono::milliseconds failure_grace, Session& session, uint32_t restart);
  AttemptOutcome run();

 private:
  using Clock = std::chrono::steady_clock;
  void start();
  bool done();
  std::vector<pid_t> left_behind() const;
  void wait();
  void take_signals();
  void fail_elsewhere();
  void stop_by(int number, const std::string& why, bool ranks_have_it);  // why: the signal's name, or its substitute
  void stop_implied(const std::string& why);
  bool must_not_wait() const;
  bool has_room(const Rank& rank, int pipe) const;
  bool read_ranks();
  void read_what_is_left();
  void notice_a_lost_reader();
  void signal_all(int number);
  void reap();
  void reap_adopted();
  void judge(Rank& rank);
  bool all_ended() const;
  std::chrono::milliseconds stop_grace() const;
  void set_deadline(std::chrono::milliseconds after, const std::string& what_they_ignored);
  void enforce_deadline();
  void say_who_survives();
  AttemptOutcome finish();
  AttemptOutcome finish_stop();
  std::string report_of_failure() const;
  std::vector<std::string> meanings() const;
  std::string consequences() const;
  std::string name_of(const Rank& rank) const;
  std::string end_of(const Rank& rank) const;

  const LaunchOptions& options_;
  const std::chrono::milliseconds failure_grace_;
  Session& session_;
  const uint32_t restart_;
  const MemoryWatch memory_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<const Rank*> ended_;  // in the order in which they ended
  const Rank* first_ = nullptr;     // the first rank that failed; later failures are consequences
  bool stop_ = false;               // first_ ended because it was asked to
  std::string why_killed_;          // why first_ was killed by SIGKILL
  int stopped_by_ = 0;
  bool stop_was_implied_ = false;  // by the end of the output's reader or of the head; a later signal counts as the first
  bool is_over_ = false;           // none of the ranks' processes is running
  size_t first_to_read_ = 0;       // rotates, so that one rank's output does not starve the others
  std::set<int> forwarded_;        // signals that were forwarded to the ranks
  std::string last_forwarded_;
  std::set<const Rank*> ended_by_us_;
  bool failed_elsewhere_ = false;  // ranks of another host have failed
  bool sent_term_ = false, sent_kill_ = false, asked_leftovers_ = false;
  bool gave_up_ = false;                       // processes that are left after SIGKILL cannot be ended
  static constexpr int kKillsUntilReport = 6;  // SIGKILL is sent every second
  int kills_ = 0;
  std::optional<Clock::time_point> deadline_;  // the time at which SIGKILL is sent
  std::string ignored_;                        // what the ranks ignored: "SIGTERM"
  std::chrono::milliseconds patience_{0};
};

std::string in_seconds(std::chrono::milliseconds time);  // "30 s", "0.5 s"

}  // namespace gannet::launch
