#include "cli/doctor/child.h"

#include <fcntl.h>
#include <gannet/error.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace gannet::cli {
namespace {

[[noreturn]] void run_child(const std::function<std::string()>& body, int out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  const int nowhere = ::open("/dev/null", O_WRONLY);
  ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(nowhere, STDERR_FILENO);
  std::string text;
  try {
    text = body();
  } catch (...) {
    ::_exit(1);
  }
  for (size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(out, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) ::_exit(1);
    if (count > 0) written += static_cast<size_t>(count);
  }
  ::_exit(0);
}

// False at the deadline.
bool read_all(int from, std::string& text, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd wanted{from, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&wanted, 1, static_cast<int>(left)) : 0;
    if (ready == 0) return false;
    char buffer[4096];
    const ssize_t count = ready > 0 ? ::read(from, buffer, sizeof(buffer)) : -1;
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    text.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace

Answer ask_child(const std::function<std::string()>& body, std::chrono::seconds deadline) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ErrorCode::kUnavailable, std::string("no pipe to a child process: ") + std::strerror(errno), "raise `ulimit -n`");
  const pid_t child = ::fork();
  if (child < 0) {
    const int code = errno;
    ::close(ends[0]);
    ::close(ends[1]);
    throw Error(ErrorCode::kUnavailable, std::string("no child process can be started: ") + std::strerror(code),
                "raise `ulimit -u`");
  }
  if (child == 0) run_child(body, ends[1]);
  ::close(ends[1]);
  Answer answer;
  const bool in_time = read_all(ends[0], answer.text, std::chrono::steady_clock::now() + deadline);
  ::close(ends[0]);
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time)
    answer.failure = "it did not return within " + std::to_string(deadline.count()) + " s";
  else if (WIFSIGNALED(status))
    answer.failure =
        "it ended the process with signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
  else if (WEXITSTATUS(status) != 0)
    answer.failure = "it ended the process with exit code " + std::to_string(WEXITSTATUS(status));
  return answer;
}

}  // namespace gannet::cli
