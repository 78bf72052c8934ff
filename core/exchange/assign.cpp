#include "exchange/assign.h"

#include <map>
#include <numeric>

namespace gannet::exchange {
namespace {

constexpr size_t kMostStates = 1'000'000;   // beyond them the question counts as undecided
constexpr size_t kMostCandidates = 10'000;  // each is a call inside that of the one before it: a file must not fill the stack

using Places = std::vector<int64_t>;

struct Search {
  const std::vector<int64_t>& sizes;
  const Places& ends;
  const std::function<bool(size_t, int64_t, size_t)>& fits;
  std::vector<int64_t> left;                 // [candidate] places that it and those behind it can fill
  std::vector<std::map<Places, int>> known;  // [candidate] ways from here on: 0, 1, or 2 for more
  size_t states = 0;

  // Calls `visit(group, places)` for each choice that this candidate has.
  template <class Visit>
  void choices(size_t candidate, const Places& places, const Visit& visit) {
    for (size_t g = 0; g < ends.size(); ++g) {
      if (sizes[candidate] > ends[g] - places[g] || !fits(g, places[g], candidate)) continue;
      Places after = places;
      after[g] += sizes[candidate];
      visit(static_cast<int>(g), after);
    }
    visit(-1, places);
  }

  int ways(size_t candidate, const Places& places) {
    const int64_t missing =
        std::transform_reduce(ends.begin(), ends.end(), places.begin(), int64_t{0}, std::plus<>(), std::minus<>());
    if (missing > left[candidate]) return 0;
    if (candidate == sizes.size()) return missing == 0;
    if (const auto found = known[candidate].find(places); found != known[candidate].end()) return found->second;
    if (++states > kMostStates) return 2;
    int sum = 0;
    choices(candidate, places, [&](int, const Places& after) {
      if (sum < 2) sum += ways(candidate + 1, after);
    });
    return known[candidate][places] = sum < 2 ? sum : 2;
  }
};

}  // namespace

Assignment assign(const std::vector<int64_t>& sizes, const Places& ends,
                  const std::function<bool(size_t, int64_t, size_t)>& fits) {
  if (sizes.size() > kMostCandidates) return {{}, true};
  Search search{sizes, ends, fits, std::vector<int64_t>(sizes.size() + 1), std::vector<std::map<Places, int>>(sizes.size()), 0};
  for (size_t i = sizes.size(); i-- > 0;) search.left[i] = search.left[i + 1] + sizes[i];
  Places places(ends.size(), 0);
  const int ways = search.ways(0, places);
  if (ways != 1) return {{}, ways > 1};
  std::vector<int> groups;
  for (size_t candidate = 0; candidate < sizes.size(); ++candidate) {
    int chosen = -1;
    Places then = places;
    search.choices(candidate, places, [&](int group, const Places& after) {
      if (search.ways(candidate + 1, after) == 0) return;
      chosen = group;
      then = after;
    });
    groups.push_back(chosen);
    places = then;
  }
  return {groups, false};
}

}  // namespace gannet::exchange
