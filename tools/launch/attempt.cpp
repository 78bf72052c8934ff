#include "launch/attempt.h"

#include <gannet/stop.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/format.h"
#include "launch/cause.h"
#include "launch/descendants.h"
#include "launch/marked.h"

namespace gannet::launch {

using std::chrono::milliseconds;

Attempt::Attempt(const LaunchOptions& options, milliseconds failure_grace, Session& session, uint32_t restart)
    : options_(options),
      failure_grace_(failure_grace),
      session_(session),
      restart_(restart),
      memory_(options.cgroup_root, options.cgroup_membership) {}

AttemptOutcome Attempt::run() {
  session_.output.drop_when_full(false);
  start();
  while (!done()) {
    wait();
    take_signals();
    reap();
    enforce_deadline();
    read_ranks();
    session_.output.flush();
    notice_a_lost_reader();
  }
  is_over_ = true;
  read_what_is_left();
  AttemptOutcome outcome = finish();
  outcome.was_stopped = stopped_by_ != 0;
  return outcome;
}

void Attempt::start() {
  StartOptions start;
  const std::vector<std::string> inherited = inherited_environment(options_);
  start.file = find_program(options_.command.at(0), path_in(inherited));
  start.command = options_.command;
  const bool terminal = isatty(0) == 1;
  const bool is_alone = options_.world_size() == 1;
  // A single rank inherits each stream that has no reader. A stream with a reader passes through
  // the launcher unchanged, so that the run stops when the reader ends.
  start.prefixed = !is_alone;
  for (const int i : {0, 1}) start.piped[i] = !is_alone || session_.output.is_pipe(i + 1);
  start.merged = is_alone && start.piped[0] && session_.output.are_one();
  // One rank on a terminal joins the front process's group, which is the terminal's, so that the
  // rank may read from the terminal.
  start.own_group = !is_alone || !terminal || session_.head;
  start.group = getpgid(getppid());
  const auto cores = available_cores();
  const auto port = options_.node.master_port ? static_cast<uint16_t>(options_.node.master_port) : free_port();
  const StartValues common{port, cores.size(), restart_, session_.mark};
  if (options_.bind_cores_to_rank) core_slice(cores, options_.procs, 0);  // fails before anything runs
  // On several nodes, srun copies its input to each of them, and mpirun to one.
  const bool has_input = options_.node.count == 1 && !terminal;
  for (uint32_t local = 0; local < options_.procs; ++local) {
    start.environment = rank_environment(inherited, options_, local, common);
    if (options_.bind_cores_to_rank) start.cores = core_slice(cores, options_.procs, local);
    // An agent's own input is its connection to the head.
    start.no_input = session_.head || (!is_alone && (local > 0 || !has_input));
    ranks_.push_back(std::make_unique<Rank>(options_.first_rank() + local, start));
  }
}

bool Attempt::done() {
  if (!all_ended()) return false;
  if (gave_up_) return true;
  if (std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->group_alive(); })) return false;
  const auto left = left_behind();  // processes that left their rank's group, as daemons do
  if (left.empty()) return true;
  if (!asked_leftovers_) {
    asked_leftovers_ = true;
    std::string names;
    for (const pid_t pid : left) names += formatted("{}{} ({})", names.empty() ? "" : ", ", pid, program_of(pid));
    session_.output.say(formatted("ending what the ranks left behind: process {}", names));
    for (const pid_t pid : left) kill(pid, SIGTERM);
    set_deadline(failure_grace_, "SIGTERM");
  }
  return false;
}

std::vector<pid_t> Attempt::left_behind() const {
  auto left = descendants_of(getpid(), {});
  for (const pid_t pid : marked_processes(session_.mark))
    if (std::find(left.begin(), left.end(), pid) == left.end()) left.push_back(pid);
  return left;
}

void Attempt::take_signals() {
  if (session_.head && session_.head->take_failure()) fail_elsewhere();
  Signal signal;
  while (session_.next(signal)) {
    // A rank in the terminal's group has received it already. It may be a debugger or a shell that
    // continues to run.
    const bool has_it = signal.is_from_terminal && ranks_.size() == 1 && ranks_[0]->target() > 0;
    if (signal.implied) {
      stop_implied(signal.implied == Signal::kHeadLost ? "the end of the connection to gannet run"
                                                       : "the end of its output's reader");
      continue;
    }
    if (Signals::is_stop(signal.number)) {
      stop_by(signal.number, signal_name(signal.number), has_it);
      continue;
    }
    forwarded_.insert(signal.number);
    last_forwarded_ = signal_name(signal.number);
    if (!has_it) signal_all(signal.number);
  }
}

// Ends the ranks after a failure on another host. Ranks already stopping keep their grace period.
void Attempt::fail_elsewhere() {
  if (is_over_ || first_ || all_ended() || stopped_by_ != 0) return;
  failed_elsewhere_ = sent_term_ = true;
  signal_all(SIGTERM);
  set_deadline(failure_grace_, "SIGTERM");
}

void Attempt::stop_by(int number, const std::string& why, bool ranks_have_it) {
  if (stopped_by_ != 0 && !stop_was_implied_) {
    session_.output.say(formatted("{} again: killing the ranks", signal_name(number)));
    sent_kill_ = true;
    signal_all(SIGKILL);
    return;
  }
  stopped_by_ = number;
  stop_was_implied_ = why != signal_name(number);
  last_forwarded_ = why;
  if (is_over_) return;
  if (ranks_.size() > 1 || stop_was_implied_)
    session_.output.say(formatted("{}{} is forwarded to {}{}{} to end{}", stop_was_implied_ ? formatted("{}: ", why) : "",
                                  signal_name(number), ranks_.size(),
                                  ranks_.size() > 1 ? " ranks, which have " : " rank, which has ", in_seconds(stop_grace()),
                                  stop_was_implied_ ? "" : "; send it again to kill them"));
  forwarded_.insert(number);
  if (ranks_have_it) return;
  set_deadline(stop_grace(), signal_name(number));
  signal_all(number);
}

void Attempt::stop_implied(const std::string& why) {
  if (stopped_by_ == 0 && !first_) stop_by(SIGTERM, why, false);
}

void Attempt::signal_all(int number) {
  for (auto& rank : ranks_)
    if (!rank->ended() || rank->group_alive()) rank->signal(number);
}

void Attempt::reap() {
  std::vector<Rank*> ended;
  for (auto& rank : ranks_)
    if (!rank->ended() && rank->reap()) ended.push_back(rank.get());
  reap_adopted();
  if (ended.empty()) return;
  // If several ranks ended together, one that a signal killed counts as the cause, and one that
  // reports a fault of its environment (exit code 3, such as a lost peer) as the consequence.
  const auto weight = [](const Rank* rank) { return rank->killed_by_signal() ? 0 : rank->exit_code() == 3 ? 2 : 1; };
  std::stable_sort(ended.begin(), ended.end(), [&](const Rank* a, const Rank* b) { return weight(a) < weight(b); });
  ended_.insert(ended_.end(), ended.begin(), ended.end());
  for (Rank* rank : ended) judge(*rank);
  // Leftover processes may be the program itself, still saving: a shell script in front of it ends
  // at once on SIGTERM.
  if (all_ended()) set_deadline(stop_ || stopped_by_ != 0 ? stop_grace() : failure_grace_, "SIGTERM");
}

// Reaps leftover processes of the ranks that have ended. A rank that ends meanwhile is handled in
// the next iteration.
void Attempt::reap_adopted() {
  siginfo_t info{};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
    const auto is_it = [&](const auto& rank) { return !rank->ended() && rank->pid() == info.si_pid; };
    if (std::any_of(ranks_.begin(), ranks_.end(), is_it)) return;
    waitpid(info.si_pid, nullptr, WNOHANG);
    info = {};
  }
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
  if (failed_elsewhere_) return;
  if (stop_) {
    if (!all_ended()) set_deadline(stop_grace(), formatted("the end of rank {}", rank.rank()));
    return;
  }
  if (number == SIGKILL) why_killed_ = memory_.why_killed();
  if (all_ended()) return;
  session_.output.say(formatted("{} {}; stopping the others", name_of(rank), rank.how_it_ended()));
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

// A process blocked in the kernel ends only once its call returns, and another user's process
// cannot be signalled. Neither can be reaped, so the launcher keeps waiting and reports what for.
void Attempt::say_who_survives() {
  for (const auto& rank : ranks_)
    if (!rank->ended())
      session_.output.say(formatted("rank {} (process {}) has not ended {} s after SIGKILL; {}, and gannet run waits for it",
                                    rank->rank(), rank->pid(), kKillsUntilReport - 1,
                                    state_of(rank->pid()) == 'D'
                                        ? "it waits inside the kernel, as for a file system or a device that does not answer"
                                        : "it may belong to another user, as after sudo"));
}

void Attempt::enforce_deadline() {
  if (!deadline_ || Clock::now() < *deadline_) return;
  std::string late;
  for (const auto& rank : ranks_)
    if (!rank->ended()) late += (late.empty() ? "" : ", ") + std::to_string(rank->rank());
  if (!late.empty() && !sent_kill_)
    session_.output.say(formatted("killing rank {}, which did not end within {} of {}", late, in_seconds(patience_), ignored_));
  if (!late.empty() && ++kills_ == kKillsUntilReport) say_who_survives();
  sent_kill_ = true;
  signal_all(SIGKILL);
  if (all_ended())
    for (const pid_t pid : left_behind()) kill(pid, SIGKILL);
  gave_up_ = all_ended();
  deadline_ = Clock::now() + milliseconds(1000);
}

}  // namespace gannet::launch
