// `--set PATH=VALUE`: sets one config value on a command line.
//
//   assign(overrides, "optimizer.params.betas=[0.9, 0.98]");
#pragma once

#include <gannet/value.h>

#include <string>

namespace gannet::config {

// "3e-4" is a number, "true" a boolean, "null" null; text that begins with [, { or " is JSON;
// anything else is a string. Throws Error(kArgument) if the path or "=" is missing or the JSON is
// malformed.
void assign(Dict& overrides, const std::string& assignment);

}  // namespace gannet::config
