// Which call of a plugin a rank's process was in when it ended: memory that the rank writes its calls to (base/call_record.h),
// and that outlives it. So an _exit() and a signal are told, too, which run no code of the rank's.
#pragma once

#include <sys/types.h>

#include <string>

namespace gannet {
struct RecordMemory;
}

namespace gannet::launch {

class LastCall {
 public:
  LastCall();  // where the machine has no memfd nothing is known, and all else works
  ~LastCall();
  LastCall(const LastCall&) = delete;

  // For the rank's environment: "GANNET_CALL_RECORD=/proc/12/fd/9"; "" where there is no memory.
  std::string variable() const;
  // "inside of optimizer plugin X 1.2, update, step 3", of a process that has ended; "": it was in no plugin, or said goodbye.
  std::string text(pid_t process) const;

 private:
  int file_ = -1;
  RecordMemory* memory_ = nullptr;
};

}  // namespace gannet::launch
