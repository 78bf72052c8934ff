#include "launch/attempt.h"

#include <gannet/stop.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "launch/cause.h"
#include "launch/marked.h"

extern char** environ;

namespace gannet::launch {

using std::chrono::milliseconds;

Attempt::Attempt(const Options& options, milliseconds failure_grace, Session& session, uint32_t restart)
    : options_(options),
      failure_grace_(failure_grace),
      session_(session),
      restart_(restart),
      memory_(options.cgroup_root, options.cgroup_membership) {}

Attempt::~Attempt() {
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (guarded_[i] && ranks_[i]->ended()) session_.guard.take_back(ranks_[i]->target());
}

Outcome Attempt::run() {
  start();
  while (!done()) {
    wait();
    take_signals();
    for (auto& rank : ranks_) rank->drain();
    reap();
    enforce_deadline();
  }
  for (auto& rank : ranks_) rank->finish_output();
  return finish();
}

void Attempt::start() {
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
  const Start common{port, cores.size(), restart_, session_.mark};
  if (options_.bind_cores_to_rank) core_slice(cores, options_.procs, 0);  // fails before anything runs
  for (uint32_t rank = 0; rank < options_.procs; ++rank) {
    start.environment = rank_environment(inherited, options_, rank, common);
    if (options_.bind_cores_to_rank) start.cores = core_slice(cores, options_.procs, rank);
    start.no_input = options_.procs > 1 && (rank > 0 || terminal);
    ranks_.push_back(std::make_unique<Rank>(rank, start));
    session_.guard.entrust(ranks_.back()->target());
    guarded_.push_back(true);
  }
}

bool Attempt::done() {
  if (!all_ended()) return false;
  if (gave_up_) return true;
  if (std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->group_alive(); })) return false;
  const auto left = marked_processes(session_.mark);  // what left its rank's group, as daemons do
  if (left.empty()) return true;
  if (!asked_leftovers_) {
    asked_leftovers_ = true;
    std::string names;
    for (const pid_t pid : left) names += (names.empty() ? "" : ", ") + std::to_string(pid) + " (" + program_of(pid) + ")";
    say("ending what the ranks left behind: process " + names);
    for (const pid_t pid : left) kill(pid, SIGTERM);
    set_deadline(failure_grace_, "SIGTERM");
  }
  return false;
}

void Attempt::wait() {
  std::vector<pollfd> waiting{{session_.signals.descriptor(), POLLIN, 0}};
  for (const auto& rank : ranks_)
    for (const int i : {0, 1})
      if (rank->pipes()[i] >= 0) waiting.push_back({rank->pipes()[i], POLLIN, 0});
  poll(waiting.data(), waiting.size(), deadline_ ? 100 : -1);
}

void Attempt::take_signals() {
  signalfd_siginfo info{};
  while (session_.signals.next(info)) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) continue;
    const bool stop = number == SIGINT || number == SIGTERM || number == SIGHUP;
    if (stop && stopped_by_ != 0) {
      say(signal_name(number) + " again: killing the ranks");
      sent_kill_ = true;
      signal_all(SIGKILL);
      continue;
    }
    // From the terminal, a rank in the launcher's own group has it already. It may be a debugger or a shell that lives on.
    const bool has_it = info.ssi_code == SI_KERNEL && ranks_.size() == 1 && ranks_[0]->target() > 0;
    if (stop) {
      stopped_by_ = number;
      if (ranks_.size() > 1)
        say(signal_name(number) + " goes on to " + std::to_string(ranks_.size()) + " ranks, which have " +
            in_seconds(stop_grace()) + " to end; send it again to kill them");
      if (!has_it) set_deadline(stop_grace(), signal_name(number));
    }
    forwarded_.insert(number);
    last_forwarded_ = number;
    if (!has_it) signal_all(number);
  }
}

void Attempt::signal_all(int number) {
  for (auto& rank : ranks_)
    if (!rank->ended() || rank->group_alive()) rank->signal(number);
}

void Attempt::reap() {
  std::vector<Rank*> ended;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = *ranks_[i];
    if (!rank.ended() && rank.reap()) ended.push_back(&rank);
    if (rank.ended() && guarded_[i] && !rank.group_alive()) {
      session_.guard.take_back(rank.target());
      guarded_[i] = false;
    }
  }
  if (ended.empty()) return;
  // Of several that ended together, a signal is the cause, and the environment's fault (a lost peer is one) the consequence.
  const auto weight = [](const Rank* rank) { return rank->killed_by_signal() ? 0 : rank->exit_code() == 3 ? 2 : 1; };
  std::stable_sort(ended.begin(), ended.end(), [&](const Rank* a, const Rank* b) { return weight(a) < weight(b); });
  ended_.insert(ended_.end(), ended.begin(), ended.end());
  for (Rank* rank : ended) judge(*rank);
  // What they left behind may be the program itself, still saving: a shell script in front of it ends at once on SIGTERM.
  if (all_ended()) set_deadline(stop_ || stopped_by_ != 0 ? stop_grace() : failure_grace_, "SIGTERM");
}

bool Attempt::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->ended(); });
}

void Attempt::judge(Rank& rank) {
  const int code = rank.exit_code();
  const int number = rank.signal_number();
  if ((number == SIGTERM && sent_term_) || (number == SIGKILL && sent_kill_)) ended_by_us_.insert(&rank);
  if (code == 0 || first_) return;
  first_ = &rank;
  stop_ = stopped_by_ != 0 || code == kStoppedExitCode || forwarded_.count(number) != 0;
  if (stop_) {
    if (!all_ended()) set_deadline(stop_grace(), "the end of rank " + std::to_string(rank.rank()));
    return;
  }
  if (number == SIGKILL) why_killed_ = memory_.why_killed();
  if (all_ended()) return;
  say("rank " + std::to_string(rank.rank()) + " of " + std::to_string(ranks_.size()) + " " + rank.how_it_ended() +
      "; stopping the others");
  sent_term_ = true;
  signal_all(SIGTERM);
  set_deadline(failure_grace_, "SIGTERM");
}

milliseconds Attempt::stop_grace() const { return milliseconds(static_cast<int64_t>(options_.grace_seconds * 1000)); }

void Attempt::set_deadline(milliseconds after, const std::string& what_they_ignored) {
  const auto when = Clock::now() + after;
  if (deadline_ && *deadline_ <= when) return;
  deadline_ = when;
  ignored_ = what_they_ignored;
  patience_ = after;
}

void Attempt::enforce_deadline() {
  if (!deadline_ || Clock::now() < *deadline_) return;
  std::string late;
  for (const auto& rank : ranks_)
    if (!rank->ended()) late += (late.empty() ? "" : ", ") + std::to_string(rank->rank());
  if (!late.empty() && !sent_kill_)
    say("killing rank " + late + ", which did not end within " + in_seconds(patience_) + " of " + ignored_);
  sent_kill_ = true;
  signal_all(SIGKILL);
  if (all_ended())
    for (const pid_t pid : marked_processes(session_.mark)) kill(pid, SIGKILL);
  gave_up_ = all_ended();
  deadline_ = Clock::now() + milliseconds(1000);
}

}  // namespace gannet::launch
