// Refuses a plugin. The reason has no subject; the caller, which opened the file, prepends the
// file's name. `remedy`: what its author can do; "": rebuild it with the SDK.
#pragma once

#include <gannet/error.h>

#include <string>

namespace gannet::plugin {

[[noreturn]] inline void refuse(const std::string& reason, const std::string& remedy = "") {
  throw Error(ErrorCode::kPlugin, reason, remedy);
}

}  // namespace gannet::plugin
