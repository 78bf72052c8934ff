#include "launch/memory.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/text.h"

namespace gannet::launch {
namespace {

// The number after `name` in a file of "name number" lines.
std::optional<uint64_t> entry_of(const std::string& file, const std::string& name) {
  std::ifstream stream(file);
  std::string word;
  for (uint64_t value; stream >> word >> value;)
    if (word == name) return value;
  return std::nullopt;
}

std::string in_mebibytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1024 * 1024));
  return text;
}

bool has_entry(const std::string& file) { return entry_of(file, "oom_kill").has_value(); }

}  // namespace

MemoryWatch::MemoryWatch(const std::string& root, const std::string& membership) : root_(root) {
  std::ifstream stream(membership);
  for (std::string line; std::getline(stream, line);) {  // "4:memory:/path" of v1, "0::/path" of v2
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const auto names = split(controllers, ',');
    const bool second_version = controllers.empty();
    if (!second_version && std::find(names.begin(), names.end(), "memory") == names.end()) continue;
    const std::string top = second_version ? root : root + "/memory";
    const std::string name = second_version ? "/memory.events" : "/memory.oom_control";
    // In a container the path may be the host's, and what is mounted is this cgroup itself.
    for (const std::string& folder : {path == "/" ? top : top + path, top}) {
      if (!file_.empty() || !has_entry(folder + name)) continue;
      root_ = top;
      folder_ = folder;
      file_ = folder + name;
      version_2_ = second_version;
    }
  }
  before_ = kills();
}

std::optional<uint64_t> MemoryWatch::kills() const { return file_.empty() ? std::nullopt : entry_of(file_, "oom_kill"); }

std::optional<uint64_t> MemoryWatch::limit_bytes() const {
  constexpr uint64_t kNone = uint64_t{1} << 62;  // v1 writes the largest multiple of a page for "none"
  std::optional<uint64_t> smallest;
  const auto take = [&](std::optional<uint64_t> limit) {
    if (limit && *limit < kNone && (!smallest || *limit < *smallest)) smallest = limit;
  };
  if (!version_2_) {
    take(entry_of(folder_ + "/memory.stat", "hierarchical_memory_limit"));
    return smallest;
  }
  for (std::filesystem::path folder = folder_;; folder = folder.parent_path()) {
    uint64_t limit = 0;
    if (std::ifstream(folder / "memory.max") >> limit) take(limit);  // "max" is no number
    if (folder == root_ || !folder.has_relative_path()) break;
  }
  return smallest;
}

std::string MemoryWatch::why_killed() const {
  const auto now = kills();
  if (!before_ || !now) return "someone's kill -9, or want of memory: this machine has no counter that would tell";
  if (*now <= *before_)
    return "someone's kill -9: the kernel killed nothing for want of memory here (oom_kill in " + file_ + " is still " +
           std::to_string(*now) + ")";
  std::string text = "killed for want of memory: oom_kill in " + file_ + " went from " + std::to_string(*before_) + " to " +
                     std::to_string(*now);
  if (const auto limit = limit_bytes()) return text + "; the cgroup's limit is " + in_mebibytes(*limit);
  return text + "; the cgroup has no limit of its own, the machine's memory was used up";
}

}  // namespace gannet::launch
