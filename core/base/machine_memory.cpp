#include "base/machine_memory.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/format.h"
#include "base/text.h"

namespace gannet {
namespace {

constexpr uint64_t kNoLimit = uint64_t{1} << 62;  // version 1 reports the largest multiple of a page for "no limit"

void take_smaller(std::optional<uint64_t>& smallest, std::optional<uint64_t> other) {
  if (other && (!smallest || *other < *smallest)) smallest = other;
}

// The memory of a cgroup's processes that cannot be reclaimed immediately.
std::optional<uint64_t> used_in(const std::string& folder, bool is_version_2) {
  auto used = first_number_in(folder + (is_version_2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!used) return std::nullopt;
  const std::string prefix = is_version_2 ? "" : "total_";  // version 1 counts child groups separately
  for (const char* cache : {"inactive_file", "active_file"})
    *used -= std::min(*used, number_in(formatted("{}/memory.stat", folder), prefix + cache).value_or(0));
  return used;
}

std::optional<uint64_t> resource_limit(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::optional<uint64_t> left_of(std::optional<uint64_t> limit, uint64_t used) {
  return limit ? std::optional(*limit - std::min(*limit, used)) : std::nullopt;
}

}  // namespace

std::optional<uint64_t> number_in(const std::string& file, const std::string& name) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string word;
    if (uint64_t value; words >> word >> value && (word == name || word == formatted("{}:", name))) return value;
  }
  return std::nullopt;
}

std::optional<uint64_t> first_number_in(const std::string& file) {
  uint64_t number = 0;
  return std::ifstream(file) >> number ? std::optional(number) : std::nullopt;
}

std::vector<MemoryCgroup> memory_cgroups(const std::string& root, const std::string& membership) {
  std::vector<MemoryCgroup> found;
  std::ifstream stream(membership);
  for (std::string line; std::getline(stream, line);) {  // "4:memory:/path" in version 1, "0::/path" in version 2
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const auto names = split(controllers, ',');
    const bool is_version_2 = controllers.empty();
    if (!is_version_2 && std::find(names.begin(), names.end(), "memory") == names.end()) continue;
    const std::string top = is_version_2 ? root : formatted("{}/memory", root);
    if (path != "/") found.push_back({top, top + path, is_version_2});
    found.push_back({top, top, is_version_2});
  }
  return found;
}

CgroupMemory cgroup_memory(const MemoryCgroup& cgroup) {
  CgroupMemory memory;
  if (cgroup.folder.empty()) return memory;
  for (std::filesystem::path path = cgroup.folder;; path = path.parent_path()) {
    const std::string folder = path.string();
    auto limit = first_number_in(folder + (cgroup.is_version_2 ? "/memory.max" : "/memory.limit_in_bytes"));
    // Version 1 also reports the limit of the ancestors, which a container may not see.
    if (!cgroup.is_version_2) take_smaller(limit, number_in(formatted("{}/memory.stat", folder), "hierarchical_memory_limit"));
    if (limit && *limit >= kNoLimit) limit.reset();
    take_smaller(memory.limit_bytes, limit);
    if (limit) take_smaller(memory.free_bytes, left_of(limit, used_in(folder, cgroup.is_version_2).value_or(0)));
    // For a group that is not below `top`, the second condition ends the loop at the root.
    if (folder == cgroup.top || !path.has_relative_path()) break;
  }
  return memory;
}

uint64_t MachineMemory::host_free_bytes() const { return std::min(available_bytes, cgroup.free_bytes.value_or(available_bytes)); }

std::optional<uint64_t> MachineMemory::process_free_bytes() const {
  std::optional<uint64_t> smallest = address_space_free_bytes;
  take_smaller(smallest, data_free_bytes);
  return smallest;
}

MachineMemory machine_memory(const std::string& proc, const std::string& cgroups) {
  const auto kibibytes = [&](const std::string& file, const char* name) {
    const auto number = number_in(formatted("{}/{}", proc, file), name);
    return number ? std::optional(*number * 1024) : std::nullopt;
  };
  MachineMemory memory;
  memory.physical_bytes = kibibytes("meminfo", "MemTotal").value_or(0);
  memory.available_bytes = kibibytes("meminfo", "MemAvailable").value_or(memory.physical_bytes);
  for (const MemoryCgroup& cgroup : memory_cgroups(cgroups, formatted("{}/self/cgroup", proc))) {
    const CgroupMemory one = cgroup_memory(cgroup);
    take_smaller(memory.cgroup.limit_bytes, one.limit_bytes);
    take_smaller(memory.cgroup.free_bytes, one.free_bytes);
  }
  memory.address_space_limit_bytes = resource_limit(RLIMIT_AS);
  memory.address_space_free_bytes = left_of(memory.address_space_limit_bytes, kibibytes("self/status", "VmSize").value_or(0));
  memory.data_limit_bytes = resource_limit(RLIMIT_DATA);
  memory.data_free_bytes = left_of(memory.data_limit_bytes, kibibytes("self/status", "VmData").value_or(0));
  return memory;
}

uint64_t free_bytes(const std::string& path) {
  struct statvfs status{};
  std::string place = path;
  while (::statvfs(place.c_str(), &status) != 0) {  // try the nearest existing ancestor
    const size_t slash = place.find_last_of('/');
    if (slash == std::string::npos || slash == 0) {
      if (errno != ENOENT || place == "." || place == "/") return UINT64_MAX;
      place.assign(1, slash == 0 ? '/' : '.');
    } else {
      place.resize(slash);
    }
  }
  // Pseudo file systems report that they have no blocks, which does not mean that they are full.
  if (status.f_blocks == 0) return UINT64_MAX;
  // Uses f_bavail, not f_bfree, since this process cannot use the blocks that are reserved for
  // root.
  return static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
}

}  // namespace gannet
