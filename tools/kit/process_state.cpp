#include "kit/process_state.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <clocale>
#include <cstring>
#include <filesystem>

#include "base/format.h"
#include "base/text.h"
#include "kit/child.h"
#include "kit/growth.h"

extern char** environ;

namespace gannet::kit {
namespace {

// Excludes SIGKILL and SIGSTOP, which have no handlers, and the two that the C library reserves.
bool can_be_handled(int signal) { return signal != SIGKILL && signal != SIGSTOP && signal != 32 && signal != 33; }

std::map<std::string, std::string> open_files() {
  std::map<std::string, std::string> files;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry->path(), gone);
    // The descriptor that lists this folder has been closed by the time of the comparison.
    if (!gone && target.string().find("/proc/") == std::string::npos) files[entry->path().filename()] = target;
  }
  return files;
}

std::string first_difference(const std::vector<std::string>& now, const std::vector<std::string>& before) {
  for (const std::string& each : now)
    if (std::find(before.begin(), before.end(), each) == before.end()) return each;
  for (const std::string& each : before)
    if (std::find(now.begin(), now.end(), each) == now.end()) return each;
  return "";
}

// Whether this process has a child process, ended or not.
bool has_child() {
  siginfo_t ended{};
  return ::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0;
}

}  // namespace

ProcessState ProcessState::now(ProcessScope scope) {
  ProcessState found;  // reads the floating-point environment before anything else
  found.locale_ = std::setlocale(LC_ALL, nullptr);
  found.thread_locale_ = reinterpret_cast<uintptr_t>(::uselocale(nullptr));
  std::error_code failed;
  found.folder_ = std::filesystem::current_path(failed);
  found.umask_ = static_cast<int>(::umask(0));
  ::umask(static_cast<mode_t>(found.umask_));
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action{};
    if (can_be_handled(signal)) ::sigaction(signal, nullptr, &action);
    found.handlers_.emplace_back(reinterpret_cast<uintptr_t>(action.sa_sigaction), action.sa_flags);
    found.mask_ += ::sigismember(&blocked, signal) == 1 ? '1' : '0';
  }
  for (char** variable = environ; variable && *variable; ++variable) found.variables_.emplace_back(*variable);
  ::sched_getaffinity(0, sizeof(found.processors_), &found.processors_);
  found.printed_ = printed_so_far().size();
  found.has_child_ = has_child();
  if (scope == ProcessScope::kSettings) return found;
  found.threads_ = entries_in("/proc/self/task");
  found.files_ = open_files();
  return found;
}

std::string ProcessState::change_since(const ProcessState& before) const {
  if (floats_ != before.floats_)
    return formatted("it changed the floating-point environment: {}",
                     floats_.flushes_denormals() != before.floats_.flushes_denormals() ? "denormal numbers count as 0"
                     : floats_.rounds_to_nearest() != before.floats_.rounds_to_nearest()
                         ? "the rounding mode"
                         : "the control word of the floating-point unit");
  if (locale_ != before.locale_) return formatted("it changed the locale from {} to {}", before.locale_, locale_);
  if (thread_locale_ != before.thread_locale_) return "it changed the thread's locale (uselocale)";
  if (folder_ != before.folder_) return formatted("it changed the working directory from {} to {}", before.folder_, folder_);
  if (umask_ != before.umask_) return formatted("it changed the umask from {:#o} to {:#o}", before.umask_, umask_);
  for (size_t i = 0; i < handlers_.size(); ++i)
    if (handlers_[i] != before.handlers_[i])
      return formatted("it changed the handler of signal {} ({})", i + 1, ::strsignal(static_cast<int>(i) + 1));
  if (mask_ != before.mask_) return "it changed which signals the thread blocks";
  if (const std::string other = first_difference(variables_, before.variables_); !other.empty())
    return formatted("it changed the environment variable {}", printable(other.substr(0, other.find('='))));
  if (!CPU_EQUAL(&processors_, &before.processors_)) return "it changed the processors on which the thread may run";
  if (printed_ != before.printed_)
    return formatted("it printed: {}", printable(printed_so_far().substr(before.printed_, 200), Lines::kMany));
  if (has_child_ != before.has_child_) return "it started a process";
  if (threads_ > before.threads_) return formatted("it left {} thread(s) running", threads_ - before.threads_);
  for (const auto& [number, target] : files_)
    if (const auto found = before.files_.find(number); found == before.files_.end() || found->second != target)
      return formatted("it left the descriptor {} open: {}", number, printable(target));
  for (const auto& [number, target] : before.files_)
    if (!files_.count(number)) return formatted("it closed the descriptor {}: {}", number, printable(target));
  return "";
}

}  // namespace gannet::kit
