#include "common/nearest.h"

#include <algorithm>
#include <cstddef>

namespace gannet::common {
namespace {

// The Levenshtein distance, which is good enough for a hint.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> line(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) line[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = line[0];
    line[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = line[j];
      line[j] = std::min({above + 1, line[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return line[b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& names) {
  std::string best;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& name : names)
    if (const size_t d = distance(word, name); d < least) {
      least = d;
      best = name;
    }
  return best.empty() ? "" : "; did you mean '" + best + "'?";
}

}  // namespace gannet::common
