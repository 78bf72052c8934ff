// What each thread of a process does inside of plugins, in memory that `gannet run` reads when the process has ended: however it
// ended, also by _exit() or a signal, which run no code of ours.
//
// The launcher makes one RecordMemory for each rank (a memfd) and names it in kRecordVariable; the first process of the rank that
// opens a plugin takes it. Without a launcher the same memory is the process's own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gannet {

inline constexpr const char* kRecordVariable = "GANNET_CALL_RECORD";  // a path: /proc/<launcher>/fd/<n>

// Where a thread is. Texts end in 0 whatever is cut; one that a thread was about to write may be half of it.
struct CallRecord {
  std::atomic<uint32_t> is_taken;   // by a thread
  std::atomic<uint32_t> is_inside;  // of the call below
  uint64_t step;                    // 0: the call is not of a step
  char kind[16], name[64], version[24], call[32], tensor[64];
  char caller[128];  // the plugin's call that this one is made for (a collective), "": none
};

struct RecordMemory {
  static constexpr uint32_t kVersion = 2, kThreads = 128;  // further threads are not recorded
  std::atomic<uint32_t> version;                           // kVersion once a process has taken it
  std::atomic<int32_t> process;
  std::atomic<uint32_t> has_ended;  // by exit() or by returning from main
  CallRecord threads[kThreads];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free, "two processes share it");

// "inside of optimizer plugin X 1.2, update, step 3, tensor 'w'", "inside of comm plugin gloo 0.2.0, work_wait, for optimizer
// plugin X 1.2, begin_step"
std::string text_of(const CallRecord& record);
// The same without memory from the heap, for handlers of signals. The bytes written, without the 0 behind them.
size_t write_record(const CallRecord& record, char* into, size_t bytes);

}  // namespace gannet
