// The report at the end of an attempt: the cause, its consequences, and the last lines of the rank
// that failed first.
#include <gannet/stop.h>
#include <signal.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>

#include "base/format.h"
#include "base/text.h"
#include "launch/attempt.h"
#include "launch/cause.h"

namespace gannet::launch {
namespace {
constexpr size_t kMostConsequences = 8;

std::string this_host() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "this machine";
}
}  // namespace

std::string in_seconds(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", static_cast<double>(time.count()) / 1000);
  return text;
}

std::string Attempt::name_of(const Rank& rank) const { return formatted("rank {} of {}", rank.rank(), options_.world_size()); }

std::string Attempt::end_of(const Rank& rank) const {
  const std::string name = formatted("rank {} ", rank.rank());
  return name + (ended_by_us_.count(&rank) ? "was ended by gannet run" : rank.how_it_ended());
}

std::vector<std::string> Attempt::meanings() const {
  std::vector<std::string> lines;
  const int number = first_->signal_number();
  const std::string meaning = number == SIGKILL ? why_killed_ : number ? meaning_of_signal(number) : "";
  if (number && !first_->killed_by_signal())
    lines.push_back(formatted("as reported by a shell: a program that it started was killed by {}", signal_name(number)));
  const std::string& call = first_->last_call();
  // For a signal from outside, the call that it interrupted is unrelated to the cause.
  const bool is_fault = number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL || number == SIGABRT ||
                        number == SIGTRAP || number == SIGSYS;
  if (!call.empty() && is_fault) lines.push_back(formatted("{}: it came {}", signal_name(number), call));
  if (!call.empty() && !number) {
    lines.push_back(formatted("the process ended {}: a plugin must not end the program; ask its author", call));
    return lines;
  }
  if (!meaning.empty()) lines.push_back(formatted("{}: {}", signal_name(number), meaning));
  if (const std::string text = number ? "" : meaning_of_exit_code(first_->exit_code()); !text.empty())
    lines.push_back(formatted("exit code {}: {}", first_->exit_code(), text));
  return lines;
}

std::string Attempt::consequences() const {
  const auto others = std::find(ended_.begin(), ended_.end(), first_) + 1;
  std::vector<std::string> texts;
  for (auto rank = others; rank != ended_.end() && texts.size() < kMostConsequences; ++rank) texts.push_back(end_of(**rank));
  const auto more = static_cast<size_t>(ended_.end() - others) - texts.size();
  return join(texts, "; ") + (more ? formatted("; and {} more ranks", more) : "");
}

std::string Attempt::report_of_failure() const {
  // With several nodes, exit code 3 means the loss of another rank, usually one on another node.
  const bool followed_from_elsewhere = options_.node.count > 1 && first_->exit_code() == 3;
  const std::string where = options_.node.count > 1 ? formatted(" on {}", this_host()) : "";
  std::string text = formatted("{}{} {}{}", name_of(*first_), where,
                               options_.world_size() == 1 ? ""
                               : followed_from_elsewhere  ? "failed first on this node: it "
                                                          : "failed first, and is the cause: it ",
                               first_->how_it_ended());
  if (followed_from_elsewhere)
    text += session_.head
                ? "\n    its last lines say why"
                : "\n    its last lines say why; if that is another rank's end, the report of that rank's node has the cause";
  for (const auto& line : followed_from_elsewhere ? std::vector<std::string>() : meanings()) text += formatted("\n    {}", line);
  if (const auto followed = consequences(); !followed.empty()) text += formatted("\n  What followed from it: {}", followed);
  if (!first_->last_lines().empty()) text += formatted("\n  The last lines of rank {}:", first_->rank());
  for (const auto& line : first_->last_lines()) text += formatted("\n    {}", line);
  return text;
}

AttemptOutcome Attempt::finish_stop() {
  const std::string by = last_forwarded_.empty() ? "stopped on request" : formatted("stopped by {}", last_forwarded_);
  const auto orderly = [](const Rank* rank) { return rank->exit_code() == 0 || rank->exit_code() == kStoppedExitCode; };
  if (std::all_of(ended_.begin(), ended_.end(), orderly)) {
    AttemptOutcome outcome{.code = kStoppedExitCode};
    outcome.report = formatted("{} after saving (exit code {})", by, kStoppedExitCode);
    return outcome;
  }
  std::vector<std::string> texts;
  for (const Rank* rank : ended_)
    if (!orderly(rank) && texts.size() < kMostConsequences)
      texts.push_back(formatted("rank {}{}", rank->rank(),
                                ended_by_us_.count(rank) ? " was killed by gannet run"
                                : forwarded_.count(rank->signal_number())
                                    ? formatted(" ended by {}, which it does not handle", signal_name(rank->signal_number()))
                                    : formatted(" {}", rank->how_it_ended())));
  const Rank* worst = *std::find_if_not(ended_.begin(), ended_.end(), orderly);
  AttemptOutcome outcome{.code = worst->exit_code()};
  outcome.report = formatted("{}, and not every rank confirmed by exit code {} that it saved: {} (exit code {})", by,
                             kStoppedExitCode, join(texts, "; "), worst->exit_code());
  return outcome;
}

AttemptOutcome Attempt::finish() {
  if (!first_) return {};
  if (stop_) return finish_stop();
  AttemptOutcome outcome{.code = first_->exit_code(), .failed = true};
  outcome.why = formatted("rank {} {}", first_->rank(), first_->how_it_ended());
  outcome.weight = outcome.code == 3            ? AttemptOutcome::kPeerLost
                   : first_->killed_by_signal() ? AttemptOutcome::kSignal
                                                : AttemptOutcome::kCode;
  if (failed_elsewhere_) {
    outcome.weight = AttemptOutcome::kPeerLost;
    if (ended_by_us_.count(first_)) outcome.why = formatted("rank {} was ended by gannet run", first_->rank());
    return outcome;
  }
  outcome.report = report_of_failure();
  if (stopped_by_ != 0)
    outcome.no_restart = formatted("{} came", signal_name(stopped_by_));
  else
    outcome.no_restart = reason_not_to_repeat(outcome.code);
  return outcome;
}

}  // namespace gannet::launch
