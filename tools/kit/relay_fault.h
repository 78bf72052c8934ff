// The first fault that a relay (relay.h) has found in this process. It is kept, because nothing may
// be thrown during the call in which it is found.
#pragma once

#include <string>

namespace gannet::kit {

void keep_fault(const std::string& what);
// Throws CheckFailure with the fault, if there is one.
void throw_kept_fault();

}  // namespace gannet::kit
