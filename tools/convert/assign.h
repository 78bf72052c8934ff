// Matches parameters by name to the entries of parameter groups by number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace gannet::convert {

// Distributes candidates over the groups: each group takes candidates in their order, from place 0 of it to its end, and some may
// be left over. `sizes`: how many places each takes. `fits(group, place, candidate)`: whether it matches there. Returns the group
// of each candidate, -1 where it is left over, or nothing: `ambiguous` then says whether several ways fit, or none.
struct Assignment {
  std::optional<std::vector<int>> groups;
  bool ambiguous = false;
};
Assignment assign(const std::vector<int64_t>& sizes, const std::vector<int64_t>& ends,
                  const std::function<bool(size_t group, int64_t place, size_t candidate)>& fits);

}  // namespace gannet::convert
