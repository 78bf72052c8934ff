// The checks that a partial plugin does not pass, and why, from a file of lines "check-name  reason"; # begins a comment.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace gannet::kit {

// By the check's name. Error(kArgument): no such file, a line without a reason, a name that is none of `known`.
std::map<std::string, std::string> read_exclusions(const std::string& path, const std::vector<std::string>& known);

}  // namespace gannet::kit
