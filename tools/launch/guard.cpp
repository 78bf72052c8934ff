#include "launch/guard.h"

#include <gannet/error.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "launch/descendants.h"
#include "launch/plan.h"
#include "launch/signals.h"

namespace gannet::launch {
namespace {

constexpr size_t kMostText = 4000;

// An exception of the launcher, serialized for the channel.
struct SerializedFailure {
  int kind;  // 0: none, 1: StartError, 2: Error, 3: a defect
  int code;  // the exit code for a shell, or the ErrorCode
  char what[kMostText], next_step[kMostText];
};

void report(int channel, int kind, int code, const std::string& what, const std::string& next_step) {
  static SerializedFailure failure;
  failure.kind = kind;
  failure.code = code;
  std::snprintf(failure.what, sizeof failure.what, "%s", what.c_str());
  std::snprintf(failure.next_step, sizeof failure.next_step, "%s", next_step.c_str());
  while (send(channel, &failure, sizeof failure, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

[[noreturn]] void be_the_launcher(int channel, const std::string& mark, const std::function<int(int)>& launcher) {
  int code = 70;
  try {
    code = launcher(channel);
  } catch (const StartError& error) {
    report(channel, 1, error.shell_code(), error.message(), error.next_step());
  } catch (const Error& error) {
    report(channel, 2, static_cast<int>(error.code()), error.message(), error.next_step());
  } catch (const std::exception& error) {
    report(channel, 3, 0, error.what(), "");
  }
  end_all_below({}, mark);  // kills what is left after an error; otherwise nothing is left
  _exit(code);
}

// Waits until the launcher has ended. Relays all signals to it.
int wait_for(pid_t launcher, int channel, int lifeline, Signals& signals, SerializedFailure& failure) {
  for (;;) {
    // Read signals first: if the launcher ends after waitpid, its SIGCHLD is still in the
    // descriptor and wakes the poll.
    Signal signal;
    while (signals.next(signal)) send(channel, &signal, sizeof signal, MSG_NOSIGNAL);
    int status = 0;
    const pid_t ended = waitpid(launcher, &status, WNOHANG);
    if (recv(channel, &failure, sizeof failure, MSG_DONTWAIT) != static_cast<ssize_t>(sizeof failure) && ended != launcher) {
      std::vector<pollfd> waiting;
      signals.add_to(waiting);
      if (lifeline >= 0) waiting.push_back({lifeline, POLLRDHUP, 0});
      poll(waiting.data(), waiting.size(), 1'000);
      if (lifeline >= 0 && waiting.back().revents != 0) {
        kill(launcher, SIGCONT);
        lifeline = -1;
      }
    }
    if (ended == launcher || (ended < 0 && errno == ECHILD)) return status;
  }
}

}  // namespace

int run_guarded(const std::string& mark, const std::function<int(int)>& launcher, int lifeline) {
  const auto children_of_before = descendants_of(getpid(), {});  // left by a shell that became this process by exec
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(ErrorCode::kIo, std::string("cannot make a socket: ") + std::strerror(errno));
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Signals signals;  // created before the fork, so that none is missed
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);  // survives a kill -9 of the front process's group, to end the rest
    close(ends[0]);
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // the setting is not inherited
    be_the_launcher(ends[1], mark, launcher);
  }
  const int fork_failure = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    throw Error(ErrorCode::kUnavailable, std::string("cannot start a process: ") + std::strerror(fork_failure),
                "see `ulimit -u` and the free memory");
  }
  static SerializedFailure failure;
  failure.kind = 0;
  const int status = wait_for(pid, ends[0], lifeline, signals, failure);
  if (WIFSIGNALED(status)) end_all_below(children_of_before, mark);
  close(ends[0]);
  if (failure.kind == 1) throw StartError(failure.code, failure.what, failure.next_step);
  if (failure.kind == 2) throw Error(static_cast<ErrorCode>(failure.code), failure.what, failure.next_step);
  if (failure.kind == 3) throw std::runtime_error(failure.what);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace gannet::launch
