// Which tensors Muon orthogonalizes, and as what matrices; the others are Adam's.
//
//   matches_any("*embed*|*lm_head*", "transformer.embed.weight")      // true
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace gannet::rules {

// '*' is any text, '?' any one character; all else is itself.
inline bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;  // the star takes one character more
      t = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// `patterns` are separated by '|'; an empty one matches nothing.
inline bool matches_any(std::string_view patterns, std::string_view text) {
  while (!patterns.empty()) {
    const size_t end = std::min(patterns.find('|'), patterns.size());
    if (end > 0 && matches(patterns.substr(0, end), text)) return true;
    patterns.remove_prefix(std::min(end + 1, patterns.size()));
  }
  return false;
}

// A tensor as matrices of one shape, one behind the other.
struct Matrices {
  uint64_t count = 1, rows = 0, columns = 0;
  double scale = 1;  // of the orthogonalized update
};

// A convolution's four dimensions are one matrix [out, in * height * width]; otherwise the last two are the matrix, those before
// count matrices (experts). As in DeepSpeed, the scale is that of the last two dimensions, of a convolution's too.
inline Matrices matrices_of(const int64_t* shape, uint32_t dimensions) {
  Matrices m;
  const auto size = [&](uint32_t d) { return static_cast<uint64_t>(shape[d]); };
  const uint64_t last = size(dimensions - 1), before_last = size(dimensions - 2);
  if (dimensions == 4) {
    m.rows = size(0);
    m.columns = size(1) * before_last * last;
  } else {
    for (uint32_t d = 0; d + 2 < dimensions; ++d) m.count *= size(d);
    m.rows = before_last;
    m.columns = last;
  }
  m.scale = std::sqrt(std::max(1.0, static_cast<double>(before_last) / static_cast<double>(last)));
  return m;
}

}  // namespace gannet::rules
