#include "launch/memory.h"

#include <cstdio>

namespace gannet::launch {
namespace {

std::string in_mebibytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1024 * 1024));
  return text;
}

}  // namespace

MemoryWatch::MemoryWatch(const std::string& root, const std::string& membership) {
  for (const MemoryCgroup& cgroup : memory_cgroups(root, membership)) {
    const std::string file = cgroup.folder + (cgroup.is_version_2 ? "/memory.events" : "/memory.oom_control");
    if (!number_in(file, "oom_kill")) continue;
    cgroup_ = cgroup;
    file_ = file;
    break;
  }
  before_ = kills();
}

std::optional<uint64_t> MemoryWatch::kills() const { return file_.empty() ? std::nullopt : number_in(file_, "oom_kill"); }

std::optional<uint64_t> MemoryWatch::limit_bytes() const { return cgroup_memory(cgroup_).limit_bytes; }

std::string MemoryWatch::why_killed() const {
  const auto now = kills();
  if (!before_ || !now) return "kill -9 from outside, or out of memory: this machine has no counter that tells which";
  if (*now <= *before_)
    return "kill -9 from outside: the kernel's out-of-memory killer ended nothing here (oom_kill in " + file_ + " is still " +
           std::to_string(*now) + ")";
  std::string text = "killed because memory ran out: oom_kill in " + file_ + " went from " + std::to_string(*before_) + " to " +
                     std::to_string(*now);
  if (const auto limit = limit_bytes()) return text + "; the cgroup's limit is " + in_mebibytes(*limit);
  return text + "; the cgroup has no limit of its own, the machine's memory was used up";
}

}  // namespace gannet::launch
