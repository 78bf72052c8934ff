// What a plugin is refused for. The reason has no subject: whoever opened the file puts its name in front.
#pragma once

#include <gannet/error.h>

#include <string>

namespace gannet::plugin {

[[noreturn]] inline void refuse(const std::string& reason) { throw Error(ErrorCode::kPlugin, reason); }

}  // namespace gannet::plugin
