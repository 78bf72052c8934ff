// Suggests the name that was probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gannet::common {

/// Returns "; did you mean 'x'?", or "" if no name is close.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names);

}  // namespace gannet::common
