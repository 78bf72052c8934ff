#include "files/names.h"

#include <algorithm>
#include <unordered_set>

#include "base/format.h"
#include "base/text.h"

namespace gannet::files {
namespace {

// The prefix that every name of `shorter` needs to be one of `longer`; "" where there is none.
std::string prefix_of(const std::vector<std::string>& longer, const std::vector<std::string>& shorter) {
  if (shorter.empty()) return "";
  const std::unordered_set<std::string> all(longer.begin(), longer.end());
  // The longest name has the fewest others that end with it.
  const std::string& sample = *std::max_element(shorter.begin(), shorter.end(),
                                                [](const std::string& a, const std::string& b) { return a.size() < b.size(); });
  for (const std::string& candidate : longer) {
    if (candidate.size() <= sample.size() + 1 || !candidate.ends_with("." + sample)) continue;
    const std::string prefix = candidate.substr(0, candidate.size() - sample.size());
    if (std::all_of(shorter.begin(), shorter.end(), [&](const std::string& name) { return all.contains(prefix + name); }))
      return prefix;
  }
  return "";
}

}  // namespace

std::string some_names(const std::vector<std::string>& names, size_t most) {
  if (names.empty()) return "none";
  const std::vector<std::string> first(names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), most)));
  return join(first, ", ") + (names.size() > most ? formatted(" and {} more", names.size() - most) : "");
}

std::string rename_that_fits(const std::vector<std::string>& in_file, const std::vector<std::string>& in_model) {
  if (const std::string prefix = prefix_of(in_file, in_model); !prefix.empty()) return prefix + "=";
  if (const std::string prefix = prefix_of(in_model, in_file); !prefix.empty()) return "=" + prefix;
  return "";
}

std::string rename_advice(const std::string& path, const std::vector<std::string>& in_file,
                          const std::vector<std::string>& in_model) {
  const std::string rename = rename_that_fits(in_file, in_model);
  if (rename.empty()) return "";
  const bool has_more = rename.ends_with('=');
  return formatted("the names fit {} the prefix '{}': `gannet checkpoint import {} OUT --rename {}` {}",
                   has_more ? "without" : "with", has_more ? rename.substr(0, rename.size() - 1) : rename.substr(1), path, rename,
                   has_more ? "takes it away" : "puts it in front");
}

}  // namespace gannet::files
