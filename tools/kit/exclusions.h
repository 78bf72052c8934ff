// The checks to exclude for a partial plugin, with reasons, from a file with one "check-name
// reason" per line; # begins a comment.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace gannet::kit {

// Reasons by check name. Throws Error(kNotFound) if the file cannot be read, and Error(kArgument) if a
// reason is missing or a name is not in `known`.
std::map<std::string, std::string> read_exclusions(const std::string& path, const std::vector<std::string>& known);

}  // namespace gannet::kit
