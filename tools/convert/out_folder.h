// Checks of the folder that an import or an export writes a new folder into, before it writes anything.
#pragma once

#include <string>

namespace gannet::convert {

// Throws Error(kArgument) unless <out>/<name> can be made: `out` has no name, is a file, a dangling link or below a file, or has
// a `name` already.
void check_out_folder(const std::string& out, const std::string& name);
[[noreturn]] void refuse_existing(const std::string& out, const std::string& name);

}  // namespace gannet::convert
