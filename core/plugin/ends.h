// Reports a process end inside a plugin: a record per thread, an exit() handler, a signal handler.
#pragma once

#include "base/call_record.h"

namespace gannet::plugin {

// The calling thread's record, valid until the thread ends.
CallRecord& call_record();

// From here on, an exit() inside a plugin ends the process with a message and exit code 71. Cheap
// after the first call.
void watch_ends();

}  // namespace gannet::plugin
