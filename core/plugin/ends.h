// Reports a process that ends inside a plugin, using one record per thread, an exit handler and a
// signal handler.
#pragma once

#include "base/call_record.h"

namespace gannet::plugin {

// The calling thread's record, valid until the thread ends.
CallRecord& call_record();

// After this call, an exit() inside a plugin ends the process with a message and exit code 71.
// Later calls are cheap.
void watch_ends();

}  // namespace gannet::plugin
