// Reports that the process ends inside a plugin, by means of a record for each thread, an exit
// handler and a signal handler.
#pragma once

#include "base/call_record.h"

namespace gannet::plugin {

// The calling thread's record, valid until the thread ends.
CallRecord& call_record();

// After this call, an exit() inside a plugin ends the process with a message and exit code 71.
// Later calls cost little.
void watch_ends();

}  // namespace gannet::plugin
