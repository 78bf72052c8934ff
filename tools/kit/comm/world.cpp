#include "kit/comm/world.h"

#include <gannet/error.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>

#include "base/format.h"
#include "kit/check.h"
#include "kit/comm/launched.h"
#include "kit/comm/store.h"
#include "kit/place.h"

namespace gannet::kit {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kGrace{1500};  // for the others to end, once a rank has failed

enum class RankProgress : int32_t { kRunning, kDone, kFailed, kSkipped };

// A rank's result, in memory that it shares with the check.
struct RankReport {
  std::atomic<RankProgress> state;
  std::atomic<int32_t> order;  // 1: the first rank that failed
  char found[800], where[500], expected[300], to_do[300];
};
struct SharedReports {
  std::atomic<int32_t> failures;
  RankReport ranks[kMostRanks];
};

template <size_t size>
void put(char (&into)[size], const std::string& text) {
  const size_t length = std::min(size - 1, text.size());
  std::memcpy(into, text.data(), length);
  into[length] = 0;
}

void say(SharedReports& shared, RankReport& said, RankProgress state, const CheckFailure& failure) {
  put(said.found, failure.found);
  put(said.where, failure.where.empty() ? text_of(place()) : failure.where);
  put(said.expected, failure.expected);
  put(said.to_do, failure.to_do);
  said.order = ++shared.failures;
  said.state = state;
}

[[noreturn]] void run_rank(SharedReports& shared, uint32_t rank, const std::function<void()>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const CheckPlace given = place();
  use_place(rank + 1);
  place() = given;
  RankReport& said = shared.ranks[rank];
  try {
    body();
    said.state = RankProgress::kDone;
  } catch (const CheckFailure& failure) {
    say(shared, said, RankProgress::kFailed, failure);
  } catch (const SkippedCheck& skipped) {
    say(shared, said, RankProgress::kSkipped, {skipped.reason});
  } catch (const Error& error) {
    say(shared, said, RankProgress::kFailed, {error.message()});
  } catch (const std::exception& error) {
    say(shared, said, RankProgress::kFailed, {error.what()});
  }
  ::_exit(0);
}

struct RankProcesses {
  explicit RankProcesses(uint32_t size) : processes(size, -1), ends(size, 0) {}
  ~RankProcesses() { end_all(); }
  bool is_any_running() const {
    return std::any_of(processes.begin(), processes.end(), [](pid_t one) { return one > 0; });
  }
  // Reap at once: a rank's death is detected by its process id, which exists until it is
  // reaped.
  void reap() {
    for (size_t rank = 0; rank < processes.size(); ++rank)
      if (processes[rank] > 0 && ::waitpid(processes[rank], &ends[rank], WNOHANG) == processes[rank]) processes[rank] = 0;
  }
  void end_all() {
    for (size_t rank = 0; rank < processes.size(); ++rank) {
      if (processes[rank] <= 0) continue;
      ::kill(processes[rank], SIGKILL);
      while (::waitpid(processes[rank], &ends[rank], 0) < 0 && errno == EINTR) {
      }
      processes[rank] = 0;
      was_ended = true;
    }
  }
  std::vector<pid_t> processes;  // 0: it has ended
  std::vector<int> ends;         // from waitpid
  bool was_ended = false;
};

std::string crash_of(uint32_t rank, uint32_t size, int end) {
  const CheckPlace& at = places().all[rank + 1];
  const std::string how = WIFSIGNALED(end) ? formatted("signal {} ({})", WTERMSIG(end), strsignal(WTERMSIG(end)))
                                           : formatted("exit code {}", WEXITSTATUS(end));
  const std::string fault =
      *at.fault ? formatted("{} (it ended the process with {})", at.fault, how) : formatted("it ended the process with {}", how);
  return formatted("rank {} of {}: {}", rank, size, fault);
}

// This process is one of the ranks, and each of them comes here for the same worlds in the same order.
void run_launched(uint32_t size, const std::string& what, const std::function<void(uint32_t, const gannet_store&)>& body,
                  const WorldOptions& options) {
  if (size != launched()->size)
    throw SkippedCheck(formatted("it is about {} ranks, and the launcher started {}", size, launched()->size));
  if (!options.dying.empty()) throw SkippedCheck("a rank is killed, and the launcher then ends them all");
  static int worlds = 0;
  const SharedStore store(options.timeout, formatted("{}.{}", launched()->file, ++worlds));
  set_rank_config(launched()->rank, size, what);
  body(launched()->rank, *store.table());
}

}  // namespace

void set_rank_config(uint32_t rank, uint32_t size, const std::string& what) {
  set_config(formatted("rank {} of {}, {}", rank, size, what));
}

void run_world(uint32_t size, const std::string& what, const std::function<void(uint32_t, const gannet_store&)>& body,
               const WorldOptions& options) {
  if (launched()) return run_launched(size, what, body, options);
  void* memory = ::mmap(nullptr, sizeof(SharedReports), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Error(ErrorCode::kOutOfMemory, "no memory to share between the ranks of a check");
  SharedReports& shared = *new (memory) SharedReports{};
  const SharedStore store(options.timeout);
  RankProcesses ranks(size);
  set_config(formatted("{} rank(s), {}", size, what));
  for (uint32_t rank = 0; rank < size; ++rank) {
    ranks.processes[rank] = ::fork();
    if (ranks.processes[rank] < 0)
      throw Error(ErrorCode::kUnavailable, formatted("no process for a rank can be started: {}", std::strerror(errno)),
                  "raise `ulimit -u`");
    if (ranks.processes[rank] == 0)
      run_rank(shared, rank, [&] {
        set_rank_config(rank, size, what);
        body(rank, *store.table());
      });
  }
  const auto is_dying = [&](uint32_t rank) { return std::count(options.dying.begin(), options.dying.end(), rank) > 0; };
  const auto is_crash = [&](uint32_t rank) {
    return ranks.processes[rank] == 0 && shared.ranks[rank].state == RankProgress::kRunning && !is_dying(rank);
  };
  const auto has_failed = [&] {
    for (uint32_t rank = 0; rank < size; ++rank)
      if (shared.ranks[rank].state >= RankProgress::kFailed || is_crash(rank)) return true;
    return false;
  };
  // A hang is left to the check's own time limit, whose report names the call.
  auto until = Clock::time_point::max();
  for (;;) {
    ranks.reap();
    if (!ranks.is_any_running() || Clock::now() > until) break;
    if (until == Clock::time_point::max() && has_failed()) until = Clock::now() + kGrace;
    ::usleep(500);
  }
  for (uint32_t rank = 0; rank < size; ++rank)
    if (is_crash(rank)) throw CheckFailure(crash_of(rank, size, ranks.ends[rank]), text_of(places().all[rank + 1]));
  const RankReport* first = nullptr;
  for (uint32_t rank = 0; rank < size; ++rank) {
    const RankReport& said = shared.ranks[rank];
    if (said.state >= RankProgress::kFailed && (!first || said.order < first->order)) first = &said;
  }
  if (first && first->state == RankProgress::kSkipped) throw SkippedCheck(first->found);
  if (first) throw CheckFailure(first->found, first->where, first->expected, first->to_do);
  ranks.end_all();
  ::munmap(memory, sizeof(SharedReports));
}

}  // namespace gannet::kit
