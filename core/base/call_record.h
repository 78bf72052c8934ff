// Records what each thread of a process does inside plugins, in memory that `gannet run` reads
// after the process has ended. This works even after _exit() or a signal, when no more Gannet code
// runs.
//
// The launcher creates one RecordMemory per rank (a memfd) and passes its path in the environment
// variable kRecordVariable. The rank's first process to open a plugin claims the memory. Without a
// launcher, the process uses memory of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gannet {

inline constexpr const char* kRecordVariable = "GANNET_CALL_RECORD";  // a path: /proc/<launcher>/fd/<n>

// The current activity of a thread. Strings are null-terminated even if truncated. A string may be
// half-written if the process ended during the write.
struct CallRecord {
  std::atomic<uint32_t> is_taken;   // whether a thread uses this record
  std::atomic<uint32_t> is_inside;  // whether the thread is inside the call below
  uint64_t step;                    // 0: the call does not belong to a step
  char kind[16], name[64], version[24], call[32], tensor[64];
  char caller[128];  // the plugin call that this call serves (a collective); "": none
};

struct RecordMemory {
  static constexpr uint32_t kVersion = 2, kThreads = 128;  // further threads are not recorded
  std::atomic<uint32_t> version;                           // kVersion once a process claimed the memory
  std::atomic<int32_t> process;
  std::atomic<uint32_t> has_ended;  // whether the process ended by exit() or by returning from main
  CallRecord threads[kThreads];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free, "two processes share it");

// Describes a record: "inside of optimizer plugin X 1.2, update, step 3, tensor 'w'" or "inside of
// comm plugin gloo 0.2.0, work_wait, for optimizer plugin X 1.2, begin_step".
std::string text_of(const CallRecord& record);
// Writes the same text without using heap memory, for signal handlers. Returns the number of bytes
// written, not counting the terminating 0.
size_t write_record(const CallRecord& record, char* into, size_t bytes);

}  // namespace gannet
