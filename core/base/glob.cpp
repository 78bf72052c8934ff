#include "base/glob.h"

#include <set>

#include "base/format.h"
#include "base/text.h"

namespace gannet {

// Matches greedily. On a mismatch, it backtracks to the last star, which then matches one more
// character. The run time is at most proportional to the product of the two lengths.
bool matches_glob(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string nearest_globs(std::string_view pattern, const std::vector<std::string>& names) {
  std::set<std::string> candidates(names.begin(), names.end());
  for (const std::string& name : names)
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      const std::string head = name.substr(0, dot), tail = name.substr(dot + 1);
      candidates.insert(formatted("{}.*", head));
      candidates.insert(formatted("*.{}", tail));
      candidates.insert(formatted("*{}*", head.substr(head.rfind('.') + 1)));
    }
  return did_you_mean(pattern, {candidates.begin(), candidates.end()});
}

}  // namespace gannet
