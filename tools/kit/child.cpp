#include "kit/child.h"

#include <fcntl.h>
#include <gannet/error.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/format.h"
#include "base/text.h"
#include "kit/comm/launched.h"
#include "kit/memory.h"
#include "kit/place.h"

namespace gannet::kit {
namespace {

using Clock = std::chrono::steady_clock;
constexpr char kEnd = '\0';  // ends the answer; no text contains it
constexpr size_t kMostPrinted = 2000;
int printed_to = -1;  // in the child: the file that holds its output

std::string start_of(int file) {
  std::string text(kMostPrinted, '\0');
  const ssize_t count = ::pread(file, text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return text;
}

[[noreturn]] void run_child(const std::function<std::string()>& body, int out, int printed, CheckPlaces* places) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans of processes that a plugin started become children of this process
  ::setsid();                          // its own process group, which can be killed as a whole
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::dup2(printed, STDOUT_FILENO);
  ::dup2(printed, STDERR_FILENO);
  printed_to = printed;
  take_places(places);
  report_bad_accesses();
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
  if (launched()) std::exit(0);  // the launcher wants the library's own end, as MPI_Finalize
  ::_exit(0);
}

// True if the answer is complete. Reads up to kEnd, not to the end of the pipe, which a process
// started by the body may keep open.
bool read_answer(int from, std::string& text, Clock::time_point until, bool& is_late) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd wanted{from, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&wanted, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      is_late = true;
      return false;
    }
    char buffer[4096];
    const ssize_t count = ::read(from, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.append(buffer, static_cast<size_t>(count));
    if (text.back() == kEnd) {
      text.pop_back();
      return true;
    }
  }
}

// Waits for a child that the launcher watches as a rank, which may itself wait for the others
// before it ends.
void wait_for_end(pid_t child) {
  siginfo_t ended{};
  for (int ms = 0; ms < 5000; ++ms) {
    if (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT | WNOHANG) != 0 || ended.si_pid == child) return;
    ::usleep(1000);
  }
}

std::string where_of(const CheckPlaces& places) {
  if (places.faulting >= 0) return text_of(places.all[places.faulting]);
  for (const CheckPlace& each : places.all)  // after a hang or an exit: a thread that is in a call
    if (*each.call) return text_of(each);
  return text_of(places.all[0]);
}

}  // namespace

std::string printed_so_far() {
  std::fflush(stdout);
  std::fflush(stderr);
  return printed_to < 0 ? "" : start_of(printed_to);
}

ChildAnswer ask_child(const std::function<std::string()>& body, std::chrono::seconds limit) {
  int ends[2];
  const int printed = ::memfd_create("printed", MFD_CLOEXEC);
  if (printed < 0 || ::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ErrorCode::kUnavailable, formatted("no pipe to a child process: {}", std::strerror(errno)), "raise `ulimit -n`");
  CheckPlaces* const places = share_places();
  const auto began = Clock::now();
  std::fflush(stdout);
  std::fflush(stderr);
  const pid_t child = ::fork();
  if (child < 0)
    throw Error(ErrorCode::kUnavailable, formatted("no child process can be started: {}", std::strerror(errno)),
                "raise `ulimit -u`");
  if (child == 0) {
    ::close(ends[0]);
    run_child(body, ends[1], printed, places);
  }
  ::close(ends[1]);
  ChildAnswer answer;
  bool is_late = false;
  const auto until = began + limit;
  const bool is_whole = read_answer(ends[0], answer.text, until, is_late);
  ::close(ends[0]);
  // Wait for the child's own exit code or signal, which is more informative than ours.
  siginfo_t ended{};
  while (!is_whole && !is_late &&
         !(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT | WNOHANG) == 0 && ended.si_pid == child)) {
    is_late = Clock::now() > until;
    ::usleep(1000);
  }
  if (launched() && is_whole) wait_for_end(child);
  ::kill(-child, SIGKILL);  // the group, while its id cannot be reused
  ::kill(child, SIGKILL);   // the child may not have reached setsid
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  answer.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  answer.printed = start_of(printed);
  ::close(printed);
  if (!is_whole) {
    answer.text.clear();
    answer.where = where_of(*places);
    if (is_late)
      answer.failure = formatted("it did not return within {} s", limit.count());
    else if (WIFSIGNALED(status))
      answer.failure = formatted("it ended the process with signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
      answer.failure = formatted("it ended the process with exit code {}", WEXITSTATUS(status));
    if (places->faulting >= 0 && *places->all[places->faulting].fault)
      answer.failure = formatted("{} ({})", places->all[places->faulting].fault, answer.failure);
  }
  unshare_places(places);
  return answer;
}

}  // namespace gannet::kit
