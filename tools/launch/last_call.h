// The plugin call that a rank's process was in when it ended. The rank writes its calls to memory
// that outlives it (base/call_record.h), so that an _exit() or a signal, after which the rank
// runs no more code, is reported as well.
#pragma once

#include <sys/types.h>

#include <string>

namespace gannet {
struct RecordMemory;
}

namespace gannet::launch {

class LastCall {
 public:
  LastCall();  // without memfd the calls are unknown; everything else works
  ~LastCall();
  LastCall(const LastCall&) = delete;

  // For the rank's environment: "GANNET_CALL_RECORD=/proc/12/fd/9"; "" if there is no memory.
  std::string variable() const;
  // The call that an ended process was in: "inside of optimizer plugin X 1.2, update, step 3"; ""
  // if it was in no plugin, or ended by exit() or by returning from main.
  std::string text(pid_t process) const;

 private:
  int file_ = -1;
  RecordMemory* memory_ = nullptr;
};

}  // namespace gannet::launch
