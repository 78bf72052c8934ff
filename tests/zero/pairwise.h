// Cases of several factors, so few that each value of a factor still meets each value of every other.
//
//   for (const auto& one : pairwise<3>({4, 3, 2}, [](const std::array<int, 3>& one) { return one[0] > 0 || one[1] == 0; }))
#pragma once

#include <array>
#include <functional>
#include <set>
#include <vector>

namespace gannet::test {

// Greedily: the next case is the one that brings the most pairs that have not met. Pairs that no legal case has are left out.
template <size_t N>
std::vector<std::array<int, N>> pairwise(
    const std::array<int, N>& values,
    const std::function<bool(const std::array<int, N>&)>& is_legal = [](const auto&) { return true; }) {
  using Case = std::array<int, N>;
  using Pair = std::array<int, 4>;  // factor, its value, another factor, its value
  const auto pairs_of = [](const Case& one) {
    std::vector<Pair> pairs;
    for (int a = 0; a < static_cast<int>(N); ++a)
      for (int b = a + 1; b < static_cast<int>(N); ++b) pairs.push_back({a, one[a], b, one[b]});
    return pairs;
  };
  std::vector<Case> all, chosen;
  std::set<Pair> open;
  Case one{};
  for (bool more = true; more;) {
    if (is_legal(one)) {
      all.push_back(one);
      for (const Pair& pair : pairs_of(one)) open.insert(pair);
    }
    more = false;
    for (size_t i = 0; i < N && !more; ++i) {
      more = ++one[i] < values[i];
      if (!more) one[i] = 0;
    }
  }
  while (!open.empty()) {
    const Case* best = nullptr;
    size_t most = 0;
    for (const Case& candidate : all) {
      size_t count = 0;
      for (const Pair& pair : pairs_of(candidate)) count += open.contains(pair);
      if (count > most) {
        most = count;
        best = &candidate;
      }
    }
    for (const Pair& pair : pairs_of(*best)) open.erase(pair);
    chosen.push_back(*best);
  }
  return chosen;
}

}  // namespace gannet::test
