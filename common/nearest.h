// The name that was meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gannet::common {

/// "; did you mean 'x'?", or "" where no name is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names);

}  // namespace gannet::common
