// `--set PATH=VALUE`: one value of a config given on a command line.
//
//   assign(overrides, "optimizer.params.betas=[0.9, 0.98]");
#pragma once

#include <gannet/value.h>

#include <string>

namespace gannet::config {

// "3e-4" is a number, "true" a boolean, "null" nothing; what begins with [, { or " is JSON; the rest is a string. Throws
// Error(kArgument) where there is no path or the JSON is malformed.
void assign(Dict& overrides, const std::string& assignment);

}  // namespace gannet::config
