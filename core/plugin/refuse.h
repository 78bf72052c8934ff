// Refuses a plugin. The reason has no subject; the caller, which opened the file, prepends the
// file's name.
#pragma once

#include <gannet/error.h>

#include <string>

namespace gannet::plugin {

[[noreturn]] inline void refuse(const std::string& reason) { throw Error(ErrorCode::kPlugin, reason); }

}  // namespace gannet::plugin
