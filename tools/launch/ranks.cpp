#include "launch/ranks.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/format.h"
#include "launch/cause.h"
#include "launch/plan.h"

namespace gannet::launch {
namespace {

constexpr int kPluginFault = 71;  // the exit code of ErrorCode::kPluginFault

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Everything that the child needs, prepared before the fork, since only async-signal-safe calls are
// legal after it.
struct PreparedChild {
  const char* file;
  char* const* argv;
  char* const* envp;
  cpu_set_t cores;
  bool bind;
  pid_t group;                       // the group to join; 0: a group of its own
  int input, output, error, report;  // -1: as inherited
  pid_t launcher;
};

[[noreturn]] void become(const PreparedChild& prepared) {
  const auto give_up = [&] {
    const int reason = errno;
    if (write(prepared.report, &reason, sizeof reason) < 0) {
    }
    _exit(127);
  };
  setpgid(0, prepared.group);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != prepared.launcher) _exit(127);  // the launcher ended before the line above
  if (prepared.bind && sched_setaffinity(0, sizeof prepared.cores, &prepared.cores) != 0) give_up();
  if (prepared.input >= 0 && dup2(prepared.input, 0) < 0) give_up();
  if (prepared.output >= 0 && dup2(prepared.output, 1) < 0) give_up();
  if (prepared.error >= 0 && dup2(prepared.error, 2) < 0) give_up();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(prepared.file, prepared.argv, prepared.envp);
  give_up();
  _exit(127);
}

[[noreturn]] void throw_start_error(const std::string& file, int reason) {
  switch (reason) {
    case ENOEXEC:
      throw StartError(126, formatted("cannot start '{}': this machine cannot execute it ({})", file, std::strerror(reason)),
                       "a script needs a first line as #!/bin/sh, a program must be built for this machine");
    case ENOENT:
      throw StartError(
          127, formatted("cannot start '{}': the file is there, but the interpreter or loader that it names is not", file),
          "see its first line (#!...), or `readelf -l` for a program");
    default:
      throw StartError(126, formatted("cannot start '{}': {}", file, std::strerror(reason)));
  }
}

std::string prefix_of(uint32_t rank) { return formatted("[{}] ", rank); }

}  // namespace

Rank::Rank(uint32_t rank, const StartOptions& options)
    : rank_(rank),
      own_group_(options.own_group),
      lines_{LinePrefixer(options.prefixed ? prefix_of(rank) : "", last_),
             LinePrefixer(options.prefixed ? prefix_of(rank) : "", last_)} {
  int ends[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};  // stdout, stderr, and where the child reports that it could not start
  const int input = options.no_input ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
  const auto argv = pointers(options.command);
  auto environment = options.environment;
  if (const std::string entry = calls_.variable(); !entry.empty()) {
    const std::string name = entry.substr(0, entry.find('=') + 1);  // drops the entry of an outer launcher
    std::erase_if(environment, [&](const std::string& other) { return other.starts_with(name); });
    environment.push_back(entry);
  }
  const auto envp = pointers(environment);
  PreparedChild prepared{options.file.c_str(),
                         argv.data(),
                         envp.data(),
                         {},
                         !options.cores.empty(),
                         options.own_group ? 0 : options.group,
                         input,
                         -1,
                         -1,
                         -1,
                         getpid()};
  CPU_ZERO(&prepared.cores);
  for (const int core : options.cores) CPU_SET(core, &prepared.cores);
  const bool wanted[] = {options.piped[0], options.piped[1] && !options.merged, true};
  for (int i = 0; i < 3; ++i)
    if (wanted[i] && pipe2(ends[i], O_CLOEXEC) != 0)
      throw Error(ErrorCode::kIo, std::string("cannot make a pipe: ") + std::strerror(errno));
  prepared.output = ends[0][1];
  prepared.error = options.merged ? ends[0][1] : ends[1][1];
  prepared.report = ends[2][1];

  pid_ = fork();
  if (pid_ == 0) become(prepared);
  const int fork_failure = pid_ < 0 ? errno : 0;
  if (pid_ > 0 && own_group_) setpgid(pid_, pid_);  // also set here: parent or child may be first
  for (const int unused : {input, ends[0][1], ends[1][1], ends[2][1]})
    if (unused >= 0) close(unused);
  for (const int i : {0, 1}) {
    pipes_[i] = ends[i][0];
    if (pipes_[i] >= 0) fcntl(pipes_[i], F_SETFL, O_NONBLOCK);
  }
  int reason = 0;
  ssize_t got = 0;
  while (fork_failure == 0 && (got = read(ends[2][0], &reason, sizeof reason)) < 0 && errno == EINTR) {
  }
  close(ends[2][0]);
  if (fork_failure != 0)
    throw Error(ErrorCode::kUnavailable, formatted("cannot start rank {}: {}", rank, std::strerror(fork_failure)),
                "see `ulimit -u` and the free memory");
  if (got == static_cast<ssize_t>(sizeof reason)) {
    waitpid(pid_, nullptr, 0);
    ended_ = true;
    throw_start_error(options.file, reason);
  }
}

Rank::~Rank() {
  if (!ended_ && pid_ > 0) {
    signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int pipe : pipes_)
    if (pipe >= 0) close(pipe);
}

bool Rank::reap() {
  if (ended_) return true;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid_) return false;
  // This comes before the process id is released: until then the group's id cannot be reused.
  if (own_group_) kill(-pid_, SIGTERM);
  waitpid(pid_, &status_, 0);
  ended_ = true;
  last_call_ = calls_.text(pid_);
  return true;
}

bool Rank::killed_by_signal() const { return ended_ && WIFSIGNALED(status_); }

int Rank::exit_code() const {
  if (WIFSIGNALED(status_)) return 128 + WTERMSIG(status_);
  return WEXITSTATUS(status_) == 0 && !last_call_.empty() ? kPluginFault : WEXITSTATUS(status_);
}

int Rank::signal_number() const { return WIFSIGNALED(status_) ? WTERMSIG(status_) : signal_in_exit_code(exit_code()); }

std::string Rank::how_it_ended() const {
  if (!WIFSIGNALED(status_) && WEXITSTATUS(status_) == 0 && !last_call_.empty())
    return formatted("ended by _exit(0) {}, which counts as exit code {}", last_call_, kPluginFault);
  if (!WIFSIGNALED(status_)) return formatted("ended with exit code {}", WEXITSTATUS(status_));
  const char* description = sigdescr_np(WTERMSIG(status_));
  return formatted("was killed by {}{}", signal_name(WTERMSIG(status_)), description ? formatted(" ({})", description) : "");
}

bool Rank::group_alive() {
  if (!ended_ || !own_group_) return !ended_;
  while (waitpid(-pid_, nullptr, WNOHANG) > 0) {  // orphans that the launcher adopted: see PR_SET_CHILD_SUBREAPER
  }
  return kill(-pid_, 0) == 0;
}

void Rank::signal(int number) const {
  if (own_group_ || !ended_) kill(target(), number);
}

bool Rank::read_output(int pipe, Output& output) {
  char text[16 * 1024];
  if (pipes_[pipe] < 0) return false;
  const ssize_t count = read(pipes_[pipe], text, sizeof text);
  if (count > 0) {
    output.write(pipe + 1, lines_[pipe].add({text, static_cast<size_t>(count)}));
    return true;
  }
  if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
    close(pipes_[pipe]);
    pipes_[pipe] = -1;
  }
  return count < 0 && errno == EINTR;
}

void Rank::finish_output(Output& output) {
  for (const int i : {0, 1}) output.write(i + 1, lines_[i].finish());
}

}  // namespace gannet::launch
