#include "convert/assign.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace gannet::convert {
namespace {

constexpr size_t kMostStates = 1'000'000;  // beyond this the assignment counts as ambiguous
constexpr int kLeftOver = -1;

using GroupFills = std::vector<int64_t>;  // [group]: how far the group is filled

struct FillState {
  std::vector<int> choices;  // groups that this candidate can go to, or kLeftOver
  int ways = 0;              // number of ways to fill all groups from here: 0, 1, or 2 for more
};
using FillLayer = std::map<GroupFills, FillState>;  // the fills reachable before a candidate

GroupFills after(GroupFills places, int group, int64_t size) {
  if (group != kLeftOver) places[static_cast<size_t>(group)] += size;
  return places;
}

// One layer for each candidate, and one after the last. Empty if there are more than kMostStates
// states. Iterates over layers instead of recursing, since recursing once per candidate could
// overflow the stack.
std::vector<FillLayer> layers_of(const std::vector<int64_t>& sizes, const GroupFills& ends,
                                 const std::function<bool(size_t, int64_t, size_t)>& fits) {
  int64_t left = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const int64_t wanted = std::accumulate(ends.begin(), ends.end(), int64_t{0});
  size_t count = 0;
  std::vector<FillLayer> layers(sizes.size() + 1);
  if (wanted <= left) layers[0][GroupFills(ends.size(), 0)];
  for (size_t candidate = 0; candidate < sizes.size(); ++candidate) {
    const int64_t size = sizes[candidate];
    left -= size;
    for (auto& [places, state] : layers[candidate]) {
      const int64_t missing = wanted - std::accumulate(places.begin(), places.end(), int64_t{0});
      // Skip choices after which the remaining candidates could not fill the groups.
      for (size_t g = 0; g < ends.size() && missing - size <= left; ++g)
        if (size <= ends[g] - places[g] && fits(g, places[g], candidate)) state.choices.push_back(static_cast<int>(g));
      if (missing <= left) state.choices.push_back(kLeftOver);
      for (const int group : state.choices) layers[candidate + 1][after(places, group, size)];
    }
    count += layers[candidate].size();
    if (count > kMostStates) return {};
  }
  return layers;
}

}  // namespace

Assignment assign(const std::vector<int64_t>& sizes, const GroupFills& ends,
                  const std::function<bool(size_t, int64_t, size_t)>& fits) {
  std::vector<FillLayer> layers = layers_of(sizes, ends, fits);
  if (layers.empty()) return {{}, true};
  for (auto& [places, state] : layers.back()) state.ways = places == ends;
  for (size_t candidate = sizes.size(); candidate-- > 0;)
    for (auto& [places, state] : layers[candidate])
      for (const int group : state.choices)
        state.ways = std::min(2, state.ways + layers[candidate + 1].at(after(places, group, sizes[candidate])).ways);

  GroupFills places(ends.size(), 0);
  const auto start = layers[0].find(places);
  if (start == layers[0].end() || start->second.ways == 0) return {{}, false};
  if (start->second.ways > 1) return {{}, true};
  std::vector<int> groups;
  for (size_t candidate = 0; candidate < sizes.size(); ++candidate) {
    for (const int group : layers[candidate].at(places).choices) {
      GroupFills then = after(places, group, sizes[candidate]);
      if (layers[candidate + 1].at(then).ways == 0) continue;
      groups.push_back(group);
      places = std::move(then);
      break;
    }
  }
  return {groups, false};
}

}  // namespace gannet::convert
