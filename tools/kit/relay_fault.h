// The first fault that a relay (relay.h) has seen in this process: it is found inside of a call, in
// which nothing may be thrown.
#pragma once

#include <string>

namespace gannet::kit {

void keep_fault(const std::string& what);
// Throws CheckFailure with the fault, if there is one.
void throw_kept_fault();

}  // namespace gannet::kit
