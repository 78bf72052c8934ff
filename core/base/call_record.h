// Records what each thread of a process does inside plugins, in memory that `gannet run` reads
// after the process has ended. This also works after _exit() or a signal, which run no code of
// ours.
//
// The launcher creates one RecordMemory per rank (a memfd) and names it in kRecordVariable. The
// first process of the rank that opens a plugin takes it. Without a launcher the memory belongs to
// the process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gannet {

inline constexpr const char* kRecordVariable = "GANNET_CALL_RECORD";  // a path: /proc/<launcher>/fd/<n>

// What a thread is doing. Texts are zero-terminated even if truncated. A text may be half-written
// if the process ended during the write.
struct CallRecord {
  std::atomic<uint32_t> is_taken;   // a thread uses this record
  std::atomic<uint32_t> is_inside;  // the thread is inside the call below
  uint64_t step;                    // 0: the call does not belong to a step
  char kind[16], name[64], version[24], call[32], tensor[64];
  char caller[128];  // the plugin call that this call serves (a collective); "": none
};

struct RecordMemory {
  static constexpr uint32_t kVersion = 2, kThreads = 128;  // further threads are not recorded
  std::atomic<uint32_t> version;                           // kVersion once a process has taken the memory
  std::atomic<int32_t> process;
  std::atomic<uint32_t> has_ended;  // the process ended by exit() or by returning from main
  CallRecord threads[kThreads];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free, "two processes share it");

// "inside of optimizer plugin X 1.2, update, step 3, tensor 'w'", "inside of comm plugin gloo 0.2.0, work_wait, for optimizer
// plugin X 1.2, begin_step"
std::string text_of(const CallRecord& record);
// The same without heap memory, for signal handlers. Returns the number of bytes written, without
// the terminating 0.
size_t write_record(const CallRecord& record, char* into, size_t bytes);

}  // namespace gannet
