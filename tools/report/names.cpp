#include "report/names.h"

#include <algorithm>
#include <filesystem>

namespace gannet::report {
namespace {

using Parts = std::vector<std::string>;  // of a path: "/", "runs", "a", "metrics.jsonl"

Parts parts_of(const std::string& path) {
  Parts parts;
  for (const auto& part : std::filesystem::absolute(path).lexically_normal()) parts.push_back(part.string());
  return parts;
}

template <typename At>
size_t common(const std::vector<Parts>& all, At at) {
  size_t least = all[0].size();
  for (const Parts& parts : all) least = std::min(least, parts.size());
  for (size_t count = 0; count < least; ++count)
    for (const Parts& parts : all)
      if (at(parts, count) != at(all[0], count)) return count;
  return least;
}

}  // namespace

std::vector<std::string> run_names(const std::vector<std::string>& paths) {
  std::vector<Parts> all;
  size_t shortest = SIZE_MAX;
  for (const std::string& path : paths) all.push_back(parts_of(path)), shortest = std::min(shortest, all.back().size());
  const size_t first = common(all, [](const Parts& parts, size_t i) { return parts[i]; });
  size_t after = common(all, [](const Parts& parts, size_t i) { return parts[parts.size() - 1 - i]; });
  if (first + after >= shortest) after = shortest > first ? shortest - first - 1 : 0;  // a name has at least one part

  std::vector<std::string> names;
  for (const Parts& parts : all) {
    std::filesystem::path name;
    for (size_t i = std::min(first, parts.size() - 1); i < parts.size() - after; ++i) name /= parts[i];
    names.push_back(name.string());
  }
  const auto bare = [](const std::string& name) { return name.ends_with(".jsonl") ? name.substr(0, name.size() - 6) : name; };
  std::vector<std::string> shorter;
  for (const std::string& name : names) shorter.push_back(bare(name));
  auto sorted = shorter;
  std::sort(sorted.begin(), sorted.end());
  const bool differ = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  return differ && std::find(shorter.begin(), shorter.end(), "") == shorter.end() ? shorter : names;
}

}  // namespace gannet::report
