#include "launch/last_call.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/call_record.h"
#include "base/format.h"

namespace gannet::launch {

LastCall::LastCall() {
  file_ = memfd_create("gannet-call-record", MFD_CLOEXEC);
  if (file_ < 0) return;
  void* mapped = ftruncate(file_, sizeof(RecordMemory)) == 0
                     ? mmap(nullptr, sizeof(RecordMemory), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0)
                     : MAP_FAILED;
  if (mapped != MAP_FAILED) memory_ = static_cast<RecordMemory*>(mapped);
}

LastCall::~LastCall() {
  if (memory_) munmap(memory_, sizeof(RecordMemory));
  if (file_ >= 0) close(file_);
}

// Names the launcher's own descriptor; the rank inherits none.
std::string LastCall::variable() const { return memory_ ? formatted("{}=/proc/{}/fd/{}", kRecordVariable, getpid(), file_) : ""; }

std::string LastCall::text(pid_t process) const {
  if (!memory_ || memory_->version.load() != RecordMemory::kVersion) return "";
  if (memory_->process.load() != process || memory_->has_ended.load() != 0) return "";
  // Threads are in the order of their first plugin calls; the program's own thread is the first.
  for (const CallRecord& record : memory_->threads) {
    if (record.is_taken.load() == 0 || record.is_inside.load() == 0) continue;
    return text_of(record);
  }
  return "";
}

}  // namespace gannet::launch
