// Checks of the folder that an import or an export writes a new folder into, before it writes anything.
#pragma once

#include <string>

namespace gannet::convert {

inline constexpr const char* kNameAnother = "name a folder that has none, or remove it";

// Throws Error(kArgument) unless <out>/<name> can be made: `out` has no name, is a file, a dangling link or below a file, or has
// a `name` already; `next` is then the step to take.
void check_out_folder(const std::string& out, const std::string& name, const std::string& next = kNameAnother);
[[noreturn]] void refuse_existing(const std::string& out, const std::string& name, const std::string& next = kNameAnother);

}  // namespace gannet::convert
