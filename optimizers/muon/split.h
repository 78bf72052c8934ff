// Selects the tensors that Muon orthogonalizes, and splits them into matrices. Adam trains the
// others.
//
//   matches_any("*embed*|*lm_head*", "transformer.embed.weight")      // true
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace gannet::rules {

// Whether the text matches the pattern: '*' matches any text, '?' any one character, and any other
// character itself.
inline bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;  // the star matches one more character
      t = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// `patterns` are separated by '|'; an empty pattern matches nothing.
inline bool matches_any(std::string_view patterns, std::string_view text) {
  while (!patterns.empty()) {
    const size_t end = std::min(patterns.find('|'), patterns.size());
    if (end > 0 && matches(patterns.substr(0, end), text)) return true;
    patterns.remove_prefix(std::min(end + 1, patterns.size()));
  }
  return false;
}

// A tensor, viewed as consecutive matrices of one shape.
struct Matrices {
  uint64_t count = 1, rows = 0, columns = 0;
  double scale = 1;  // multiplies the orthogonalized update
};

// A 4-dimensional convolution weight is one matrix [out, in * height * width]. In any other tensor
// the last two dimensions form a matrix, and the leading ones count the matrices (experts). As in
// DeepSpeed, the scale is computed from the last two dimensions, for convolutions as well.
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
