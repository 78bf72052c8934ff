#include "launch/launch.h"

#include <fcntl.h>
#include <gannet/error.h>
#include <unistd.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "launch/attempt.h"
#include "launch/cause.h"
#include "launch/guard.h"
#include "launch/marked.h"
#include "launch/supervise.h"

namespace gannet::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPatience = std::chrono::seconds(3);

// Reports the reason if restarts were enabled and the answer is no.
bool may_restart(const LaunchOptions& options, Session& session, const AttemptOutcome& outcome, uint32_t restarts) {
  if (!outcome.failed || options.max_restarts == 0) return false;
  const std::string most = std::to_string(options.max_restarts);
  if (!outcome.no_restart.empty()) {
    session.output.say(formatted("no restart: {}", outcome.no_restart));
    return false;
  }
  if (restarts == options.max_restarts) {
    session.output.say(formatted("no restart: all {} are used up", most));
    return false;
  }
  session.output.say(formatted("restart {} of {}, because {}", restarts + 1, most, outcome.why));
  return true;
}

// Whether a stop signal came; reports it. SIGUSR1 counts: no rank is running that could save on it.
bool stop_came(Session& session, const std::string& instead_of) {
  Signal signal;
  while (session.next(signal))
    if (Signals::is_stop(signal.number) || signal.number == SIGUSR1) {
      session.output.say(formatted("{} came: {}", signal_name(signal.number), instead_of));
      return true;
    }
  return false;
}

// The pause between restarts that fail at once: none before the first, then 1 s, 2 s, 4 s ... up to
// 60 s. After an attempt that ran longer than 60 s, the next restart is again without a pause.
class RestartPause {
 public:
  explicit RestartPause(double seconds) : first_(milliseconds(static_cast<int64_t>(seconds * 1000))) {}
  // False if a stop signal arrived.
  bool wait(Session& session, Clock::duration attempt, const std::function<void()>& turn) {
    if (attempt > kLongest) in_a_row_ = 0;
    const auto time = in_a_row_ == 0 ? milliseconds(0) : std::min<milliseconds>(kLongest, first_ * (1 << (in_a_row_ - 1)));
    in_a_row_ = std::min(in_a_row_ + 1, 16);
    if (time.count() > 0)
      session.output.say(formatted("waiting {} first, as the ranks fail soon after their start", in_seconds(time)));
    for (const auto end = Clock::now() + time;;) {
      if (stop_came(session, "no restart")) return false;
      const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
      if (left.count() <= 0) return true;
      if (turn)
        turn();
      else
        session.wait({}, left);
      session.output.flush();
    }
  }

 private:
  static constexpr std::chrono::seconds kLongest{60};
  milliseconds first_;
  int in_a_row_ = 0;
};

// After a failure or a stop, drops the output if its reader reads nothing for `patience`, since a
// batch system waits for the exit code. After a success, waits for the reader as any program does,
// until a stop is requested.
void finish_output(Session& session, milliseconds patience) {
  auto last_progress = Clock::now();
  for (size_t before = session.output.pending(); before > 0;) {
    session.wait({}, std::min<milliseconds>(patience, std::chrono::seconds(1)));
    if (stop_came(session, "not waiting for the output's reader")) break;
    session.output.flush();
    const size_t now = session.output.pending();
    if (now < before) last_progress = Clock::now();
    before = now;
    if (Clock::now() - last_progress >= patience) break;
  }
  if (const size_t left = session.output.pending())
    session.output.say(formatted("the last {} of output were dropped: its reader has stalled", size_text(left)));
}

}  // namespace

void report_dropped(Session& session) {
  if (const uint64_t bytes = session.output.take_dropped())
    session.output.say(
        formatted("{} of the ranks' output were dropped: {}", size_text(bytes),
                  session.output.has_failed() ? "it could not be written" : "it was not read while the ranks were being ended"));
}

void keep_descriptors_apart() {
  for (const int stream : {1, 2}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    const int nowhere = open("/dev/null", O_WRONLY);
    if (nowhere >= 0 && nowhere != stream) {
      dup2(nowhere, stream);
      close(nowhere);
    }
  }
}

int supervise(const LaunchOptions& options, Session& session, const std::function<AttemptOutcome(uint32_t restart)>& attempt,
              const std::function<void()>& turn) {
  RestartPause pause(options.restart_pause_seconds);
  for (uint32_t restarts = 0;; ++restarts) {
    const auto start = Clock::now();
    const AttemptOutcome outcome = attempt(restarts);
    if (!outcome.report.empty()) session.output.say(outcome.report);
    report_dropped(session);
    if (!may_restart(options, session, outcome, restarts) || !pause.wait(session, Clock::now() - start, turn)) {
      finish_output(session, outcome.code != 0 || outcome.was_stopped ? kPatience : std::chrono::hours(24 * 365));
      return outcome.code;
    }
  }
}

int run(const LaunchOptions& options, std::chrono::milliseconds failure_grace) {
  if (options.command.empty())
    throw Error(ErrorCode::kArgument, "no program was named", "gannet run --num_procs N PROGRAM ARGS...");
  if (options.procs == 0) throw Error(ErrorCode::kArgument, "the number of processes is 0", "start at least one");
  keep_descriptors_apart();
  const std::string mark = new_mark();
  return run_guarded(mark, [&](int channel) {
    Session session(mark, channel);
    return supervise(options, session, [&](uint32_t restart) { return Attempt(options, failure_grace, session, restart).run(); });
  });
}

}  // namespace gannet::launch
