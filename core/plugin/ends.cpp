#include "plugin/ends.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>

#include "plugin/inside.h"

namespace gannet::plugin {
namespace {

constexpr int kPluginFault = 71;  // the exit code of ErrorCode::kPluginFault
constexpr size_t kMostText = 512;

// The memory is never freed: plugins may be called while static objects are destroyed.
RecordMemory& own_memory() {
  static auto& memory = *new RecordMemory{};
  return memory;
}

// The shared memory that the launcher offers, unless another live process uses it: the launcher may
// run a script that starts several programs.
RecordMemory* memory_of_launcher() {
  const char* path = std::getenv(kRecordVariable);
  const int file = path ? ::open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return nullptr;
  void* mapped = ::lseek(file, 0, SEEK_END) < static_cast<off_t>(sizeof(RecordMemory))
                     ? MAP_FAILED
                     : ::mmap(nullptr, sizeof(RecordMemory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (mapped == MAP_FAILED) return nullptr;
  auto* memory = static_cast<RecordMemory*>(mapped);
  int32_t owner = memory->process.load();
  const bool is_free =
      owner == 0 || owner == ::getpid() || memory->has_ended.load() != 0 || (::kill(owner, 0) != 0 && errno == ESRCH);
  if (!is_free || !memory->process.compare_exchange_strong(owner, ::getpid())) {
    ::munmap(mapped, sizeof(RecordMemory));
    return nullptr;
  }
  for (CallRecord& record : memory->threads) {
    record.is_inside.store(0);
    record.is_taken.store(0);
  }
  memory->has_ended.store(0);
  memory->version.store(RecordMemory::kVersion);
  return memory;
}

std::atomic<RecordMemory*> memory_in_use{nullptr};

RecordMemory& memory() {
  if (RecordMemory* found = memory_in_use.load(std::memory_order_acquire)) return *found;
  static std::once_flag once;
  std::call_once(once, [] {
    RecordMemory* offered = memory_of_launcher();
    memory_in_use.store(offered ? offered : &own_memory(), std::memory_order_release);
  });
  return *memory_in_use.load(std::memory_order_acquire);
}

// The record for threads that have none of their own, or that have already returned theirs.
CallRecord nobodys{};

thread_local CallRecord* mine = nullptr;

struct RecordLease {
  ~RecordLease() {
    if (!taken) return;
    mine = &nobodys;  // later destructors may still call plugins
    taken->is_inside.store(0, std::memory_order_relaxed);
    taken->is_taken.store(0, std::memory_order_release);
  }
  CallRecord* taken = nullptr;
};
thread_local RecordLease lease;

CallRecord& take_place() {
  for (CallRecord& record : memory().threads) {
    uint32_t free = 0;
    if (record.is_taken.load(std::memory_order_relaxed) != 0 || !record.is_taken.compare_exchange_strong(free, 1)) continue;
    lease.taken = &record;
    return *(mine = &record);
  }
  return *(mine = &nobodys);
}

// Whether a signal handler of the program is on the stack. If so, that handler called exit(), not
// the interrupted plugin.
bool is_in_handler_of_signal() {
  bool is = false;
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* found) {
        int is_before = 0;
        _Unwind_GetIPInfo(context, &is_before);  // set for a frame that a signal interrupted
        if (is_before == 0) return _URC_NO_REASON;
        *static_cast<bool*>(found) = true;
        return _URC_END_OF_STACK;
      },
      &is);
  return is;
}

void say(const char* begin, const PluginCallMark& inside, const char* end) {
  char text[kMostText];
  size_t at = 0;
  const auto add = [&](const char* part) {
    while (*part && at + 1 < sizeof(text)) text[at++] = *part++;
  };
  add(begin);
  at += inside.write(text + at, sizeof(text) - at);
  add(end);
  if (::write(2, text, at) < 0) {
  }
}

void at_exit() {
  const PluginCallMark* inside = PluginCallMark::current();
  if (!inside || is_in_handler_of_signal()) {
    memory().has_ended.store(1);
    return;
  }
  std::cout.flush();
  std::fflush(nullptr);
  say("gannet: error: exit() was called ", *inside,
      ": a plugin must not end the program\n  to do: this is a fault of the plugin, not of the config and not of Gannet: tell "
      "its "
      "author, or use another version\n");
  memory().has_ended.store(1);
  // Skips the remaining exit handlers and destructors, since the engine is in the middle of a call.
  ::_exit(kPluginFault);
}

// The child of a fork() has only the thread that called fork(), and its exit is not the end of the
// program.
void after_fork_in_child() {
  memory_in_use.store(&own_memory(), std::memory_order_release);
  mine = &nobodys;
  lease.taken = nullptr;
  PluginCallMark::forget();
}

void on_signal(int number) {
  if (const PluginCallMark* inside = PluginCallMark::current()) say("gannet: error: a signal came ", *inside, "\n");
  ::raise(number);  // now triggers the default action, because of SA_RESETHAND
}

}  // namespace

CallRecord& call_record() { return mine ? *mine : take_place(); }

void watch_ends() {
  static const bool is_watched = [] {
    memory();
    ::pthread_atfork(nullptr, nullptr, after_fork_in_child);
    return std::atexit(at_exit) == 0 && std::at_quick_exit(at_exit) == 0;
  }();
  static_cast<void>(is_watched);
}

void tell_fatal_signals() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
      struct sigaction now{};
      if (::sigaction(number, nullptr, &now) != 0 || now.sa_flags & SA_SIGINFO || now.sa_handler != SIG_DFL) continue;
      struct sigaction ours{};
      ours.sa_handler = on_signal;
      ours.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER | SA_ONSTACK);
      ::sigaction(number, &ours, nullptr);
    }
  });
}

}  // namespace gannet::plugin
