// Matches named parameters to the numbered entries of parameter groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace gannet::convert {

// Distributes candidates over the groups. Each group takes candidates in their order and is filled
// from place 0 to its end; some candidates may be left over. `sizes`: how many places each
// candidate fills. `fits(group, place, candidate)`: whether the candidate matches there. Returns
// the group of each candidate, -1 if it is left over. Returns no groups if no assignment fits, or, with
// `ambiguous` true, if several fit or there are too many to search.
struct Assignment {
  std::optional<std::vector<int>> groups;
  bool ambiguous = false;
};
Assignment assign(const std::vector<int64_t>& sizes, const std::vector<int64_t>& ends,
                  const std::function<bool(size_t group, int64_t place, size_t candidate)>& fits);

}  // namespace gannet::convert
