#include "launch/launch.h"

#include <gannet/error.h>
#include <sys/prctl.h>

#include "launch/attempt.h"
#include "launch/marked.h"

namespace gannet::launch {
namespace {

// Says why when the answer is no and restarts were wanted.
bool may_restart(const Options& options, const Outcome& outcome, uint32_t restarts) {
  if (!outcome.failed || options.max_restarts == 0) return false;
  const std::string most = std::to_string(options.max_restarts);
  if (!outcome.no_restart.empty()) {
    say("no restart: " + outcome.no_restart);
    return false;
  }
  if (restarts == options.max_restarts) {
    say("no restart: all " + most + " are used up");
    return false;
  }
  say("restart " + std::to_string(restarts + 1) + " of " + most + ", because " + outcome.why);
  return true;
}

}  // namespace

int run(const Options& options, std::chrono::milliseconds failure_grace) {
  if (options.command.empty())
    throw Error(ErrorCode::kArgument, "no program was named", "gannet run --num_procs N PROGRAM ARGS...");
  if (options.procs == 0) throw Error(ErrorCode::kArgument, "the number of processes is 0", "start at least one");
  // What a rank leaves behind becomes a child of the launcher, which hears of its end, and reaps it where process 1 does not.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Session session(new_mark());
  for (uint32_t restarts = 0;; ++restarts) {
    const Outcome outcome = Attempt(options, failure_grace, session, restarts).run();
    if (!may_restart(options, outcome, restarts)) return outcome.code;
  }
}

}  // namespace gannet::launch
