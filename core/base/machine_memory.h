// Measures the memory and disk space that this machine can still provide, given what is installed
// and free and what cgroups and `ulimit` allow.
//
//   const MachineMemory memory = machine_memory();
//   memory.host_free_bytes();              // available to all processes of this host (or container) together
//   memory.process_free_bytes();           // available to this process, if `ulimit` limits it
//   free_bytes("/local_nvme/swap");        // free on the disk of a folder, which need not exist yet
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gannet {

// The number after `name` in a kernel file with lines of the form "name number" (16 for "MemTotal:
// 16 kB"); nullopt if there is none.
std::optional<uint64_t> number_in(const std::string& file, const std::string& name);

// The number at the start of a kernel file; nullopt if it is missing or starts with a word ("max").
std::optional<uint64_t> first_number_in(const std::string& file);

// The folder of a control group (cgroup) that may contain this process.
struct MemoryCgroup {
  std::string top, folder;  // top: the mount point of the hierarchy; folder: the group's folder, at or below `top`
  bool is_version_2 = false;
};

// The candidates for this process's cgroups, best first. `root` is the mount point of cgroups;
// `membership` is the file that lists a process's groups. In a container, the path in that file may
// be the path on the host, while the mounted folder is the group itself. Therefore each candidate
// is followed by its `top`.
std::vector<MemoryCgroup> memory_cgroups(const std::string& root = "/sys/fs/cgroup",
                                         const std::string& membership = "/proc/self/cgroup");

struct CgroupMemory {
  std::optional<uint64_t> limit_bytes;  // the smallest limit of the group and its ancestors; nullopt: none has one
  std::optional<uint64_t> free_bytes;   // the minimum left below any of these limits; reclaimable page cache counts as free
};
CgroupMemory cgroup_memory(const MemoryCgroup& cgroup);

struct MachineMemory {
  uint64_t physical_bytes = 0;   // MemTotal
  uint64_t available_bytes = 0;  // MemAvailable: what can be used without swapping
  CgroupMemory cgroup;
  std::optional<uint64_t> address_space_limit_bytes, address_space_free_bytes;  // RLIMIT_AS, and what is left of it
  std::optional<uint64_t> data_limit_bytes, data_free_bytes;                    // RLIMIT_DATA

  uint64_t host_free_bytes() const;
  std::optional<uint64_t> process_free_bytes() const;  // nullopt: limited only by the host
};

// `proc` and `cgroups` are the mount points of those file systems.
MachineMemory machine_memory(const std::string& proc = "/proc", const std::string& cgroups = "/sys/fs/cgroup");

// The free bytes on the disk of a folder, or of its nearest existing ancestor; UINT64_MAX if the
// file system does not report them.
uint64_t free_bytes(const std::string& path);

}  // namespace gannet
