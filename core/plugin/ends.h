// How a process that ends inside of a plugin says so: the record of each thread, the handler of exit(), the one of signals.
#pragma once

#include "base/call_record.h"

namespace gannet::plugin {

// Of the calling thread, until it ends.
CallRecord& call_record();

// From here on an exit() inside a plugin ends with a message and exit code 71. Costs little from the second call on.
void watch_ends();

}  // namespace gannet::plugin
