#include "doctor/child.h"

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
#include <thread>

#include "base/format.h"

namespace gannet::doctor {
namespace {

constexpr char kEnd = '\0';  // ends the answer; no text contains it
constexpr size_t kLargestAnswer = size_t{16} << 20;

[[noreturn]] void run_child(const std::function<std::string()>& body, int out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setsid();  // its own process group, which can be killed as a whole
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
  text += kEnd;
  for (size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(out, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) ::_exit(1);
    if (count > 0) written += static_cast<size_t>(count);
  }
  ::_exit(0);
}

enum class AnswerState { kWhole, kBroken, kTooLate, kTooLong };

// Reads up to kEnd, not to the end of the pipe: a process started by the body may hold the pipe
// open.
AnswerState read_answer(int from, std::string& text, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd wanted{from, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&wanted, 1, static_cast<int>(left)) : 0;
    if (ready == 0) return AnswerState::kTooLate;
    char buffer[4096];
    const ssize_t count = ready > 0 ? ::read(from, buffer, sizeof(buffer)) : -1;
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return AnswerState::kBroken;
    text.append(buffer, static_cast<size_t>(count));
    if (text.back() == kEnd) {
      text.pop_back();
      return AnswerState::kWhole;
    }
    if (text.size() > kLargestAnswer) return AnswerState::kTooLong;
  }
}

// Waits for the exit of a child that has closed its end of the pipe. Returns false at the deadline.
// The child is not reaped, so that its process id is not reused.
bool await_end(pid_t child, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    siginfo_t ended{};
    if (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT | WNOHANG) == 0 && ended.si_pid == child) return true;
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

ChildAnswer ask_child(const std::function<std::string()>& body, std::chrono::seconds deadline) {
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
  ChildAnswer answer;
  const auto until = std::chrono::steady_clock::now() + deadline;
  AnswerState reading = read_answer(ends[0], answer.text, until);
  ::close(ends[0]);
  // Wait for the child's own exit code or signal, which is more informative than ours would be.
  if (reading == AnswerState::kBroken && !await_end(child, until)) reading = AnswerState::kTooLate;
  ::kill(-child, SIGKILL);  // the group, while its id cannot be reused
  ::kill(child, SIGKILL);   // the child may not have reached setsid
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (reading == AnswerState::kWhole) return answer;
  answer.text.clear();
  if (reading == AnswerState::kTooLate)
    answer.failure = formatted("it did not return within {} s", deadline.count());
  else if (reading == AnswerState::kTooLong)
    answer.failure = "its answer was incomplete";
  else if (WIFSIGNALED(status))
    answer.failure = formatted("it ended the process with signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  else
    answer.failure = formatted("it ended the process with exit code {}", WEXITSTATUS(status));
  return answer;
}

}  // namespace gannet::doctor
