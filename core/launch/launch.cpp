#include "launch/launch.h"

#include <gannet/error.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "launch/guard.h"
#include "launch/ranks.h"

extern char** environ;

namespace gannet::launch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// How long ranks that were asked to stop by the user may take once the first of them has ended.
constexpr milliseconds kStopPatience{30'000};

void say(const std::string& text) { write_fully(2, "[gannet run] " + text + "\n"); }

// The signals that the launcher takes, as a file descriptor; the mask of before comes back at the end.
class Signals {
 public:
  Signals() {
    sigset_t taken;
    sigemptyset(&taken);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&taken, number);
    sigprocmask(SIG_BLOCK, &taken, &before_);
    descriptor_ = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Signals() {
    close(descriptor_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  int descriptor() const { return descriptor_; }
  bool next(signalfd_siginfo& info) { return read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info); }

 private:
  sigset_t before_;
  int descriptor_;
};

class Launch {
 public:
  Launch(const Options& options, milliseconds grace) : options_(options), grace_(grace) {}

  int run() {
    start();
    while (!done()) {
      wait();
      take_signals();
      for (auto& rank : ranks_) rank->drain();
      reap();
      enforce_deadline();
    }
    for (auto& rank : ranks_) rank->finish_output();
    return code_.value_or(0);
  }

 private:
  void start() {
    // What a rank leaves behind becomes a child of the launcher, which hears of its end, and reaps it where process 1 does not.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    StartOptions start;
    const char* path = std::getenv("PATH");
    start.file = find_program(options_.command.at(0), path ? path : "/usr/local/bin:/usr/bin:/bin");
    start.command = options_.command;
    const bool terminal = isatty(0) == 1;
    start.piped = options_.procs > 1;
    // One rank on a terminal stays in the launcher's group, which is the one in the foreground: it may read.
    start.own_group = options_.procs > 1 || !terminal;
    std::vector<std::string> inherited;
    for (char** entry = environ; *entry; ++entry) inherited.push_back(*entry);
    const auto cores = available_cores();
    const auto port = options_.master_port ? static_cast<uint16_t>(options_.master_port) : free_port();
    if (options_.bind_cores_to_rank) core_slice(cores, options_.procs, 0);  // fails before anything runs
    for (uint32_t rank = 0; rank < options_.procs; ++rank) {
      start.environment = rank_environment(inherited, options_, rank, port, cores.size());
      if (options_.bind_cores_to_rank) start.cores = core_slice(cores, options_.procs, rank);
      start.no_input = options_.procs > 1 && (rank > 0 || terminal);
      ranks_.push_back(std::make_unique<Rank>(rank, start));
      guard_.entrust(ranks_.back()->target());
      guarded_.push_back(true);
    }
  }

  bool done() {
    if (!all_ended()) return false;
    return gave_up_ || std::none_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->group_alive(); });
  }

  void wait() {
    std::vector<pollfd> waiting{{signals_.descriptor(), POLLIN, 0}};
    for (const auto& rank : ranks_)
      for (const int i : {0, 1})
        if (rank->pipes()[i] >= 0) waiting.push_back({rank->pipes()[i], POLLIN, 0});
    poll(waiting.data(), waiting.size(), deadline_ ? 100 : -1);
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (signals_.next(info)) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) continue;
      const bool stop = number == SIGINT || number == SIGTERM || number == SIGHUP;
      if (stop && stopped_by_ != 0) {
        say(signal_name(number) + " again: killing the ranks");
        signal_all(SIGKILL);
        continue;
      }
      if (stop) {
        stopped_by_ = number;
        if (ranks_.size() > 1)
          say(signal_name(number) + " goes on to " + std::to_string(ranks_.size()) + " ranks; send it again to kill them");
      }
      // From the terminal, a rank in the launcher's own group has it already.
      const bool has_it = info.ssi_code == SI_KERNEL && ranks_.size() == 1 && ranks_[0]->target() > 0;
      if (!has_it) signal_all(number);
    }
  }

  void signal_all(int number) {
    for (auto& rank : ranks_)
      if (!rank->ended() || rank->group_alive()) rank->signal(number);
  }

  void reap() {
    std::vector<Rank*> ended;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      Rank& rank = *ranks_[i];
      if (!rank.ended() && rank.reap()) ended.push_back(&rank);
      if (rank.ended() && guarded_[i] && !rank.group_alive()) {
        guard_.take_back(rank.target());
        guarded_[i] = false;
      }
    }
    if (ended.empty()) return;
    // Of several that ended together, a signal is the cause and another's error about its lost peer the consequence.
    std::stable_partition(ended.begin(), ended.end(), [](const Rank* rank) { return rank->killed_by_signal(); });
    for (Rank* rank : ended) judge(*rank);
    if (deadline_) return;
    if (all_ended())
      deadline_ = Clock::now() + grace_;  // for what they left behind
    else if (stopped_by_ != 0)
      deadline_ = Clock::now() + kStopPatience;
  }

  bool all_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->ended(); });
  }

  void judge(Rank& rank) {
    const int code = rank.exit_code();
    if (code == 0 || code_) return;  // the first failure counts: the rest follow from it
    code_ = code;
    if (stopped_by_ != 0) return;  // the user's wish, not a failure
    rank.drain();
    const bool others = !all_ended();
    std::string text = "rank " + std::to_string(rank.rank()) + " of " + std::to_string(ranks_.size()) + " " +
                       rank.how_it_ended() + (others ? "; stopping the others" : "");
    const auto lines = ranks_.size() > 1 ? rank.last_lines() : std::vector<std::string>{};
    if (!lines.empty()) text += ". Its last lines:";
    for (const auto& line : lines) text += "\n    " + line;
    say(text);
    if (!others) return;
    signal_all(SIGTERM);
    deadline_ = Clock::now() + grace_;
  }

  void enforce_deadline() {
    if (!deadline_ || Clock::now() < *deadline_) return;
    std::string late;
    for (const auto& rank : ranks_)
      if (!rank->ended()) late += (late.empty() ? "" : ", ") + std::to_string(rank->rank());
    if (!late.empty()) say("killing rank " + late + ", which did not end on SIGTERM");
    signal_all(SIGKILL);
    gave_up_ = all_ended();
    deadline_ = Clock::now() + milliseconds(1000);
  }

  const Options& options_;
  milliseconds grace_;
  Signals signals_;  // before the ranks start: no end of one is missed
  Guard guard_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<bool> guarded_;
  int stopped_by_ = 0;
  bool gave_up_ = false;  // what is left after SIGKILL cannot be ended
  std::optional<int> code_;
  std::optional<Clock::time_point> deadline_;  // then SIGKILL
};

}  // namespace

int run(const Options& options, milliseconds grace) {
  if (options.command.empty())
    throw Error(ErrorCode::kArgument, "no program was named", "gannet run --num_procs N PROGRAM ARGS...");
  if (options.procs == 0) throw Error(ErrorCode::kArgument, "the number of processes is 0", "start at least one");
  return Launch(options, grace).run();
}

}  // namespace gannet::launch
