#include "launch/memory.h"

#include <cstdio>

#include "base/format.h"

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
  if (!before_ || !now) return "someone's kill -9, or out of memory: this machine has no counter to tell which";
  if (*now <= *before_)
    return formatted("someone's kill -9: the kernel killed no process for lack of memory here (oom_kill in {} is still {})",
                     file_, *now);
  std::string text = formatted("killed by the kernel, out of memory: oom_kill in {} went from {} to {}", file_, *before_, *now);
  if (const auto limit = limit_bytes()) return formatted("{}; the cgroup's limit is {}", text, in_mebibytes(*limit));
  return formatted("{}; the cgroup has no limit of its own, the machine's memory was used up", text);
}

}  // namespace gannet::launch
