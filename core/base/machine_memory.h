// How much memory and disk this machine can still give: what is built in, what is free, and who sets a limit below that.
//
//   const MachineMemory memory = machine_memory();
//   memory.host_free_bytes();              // for all processes of this host (of this container) together
//   memory.process_free_bytes();           // for this process, where `ulimit` bounds it
//   free_bytes("/local_nvme/swap");        // on the disk of a folder that need not exist yet
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gannet {

// The number after `name` in a file of "name number" lines, as the kernel writes them ("MemTotal: 16 kB" too: 16).
std::optional<uint64_t> number_in(const std::string& file, const std::string& name);

// The number that a file of the kernel's begins with; none where it is a word ("max").
std::optional<uint64_t> first_number_in(const std::string& file);

// A folder of the kernel's control groups that may hold this process.
struct MemoryCgroup {
  std::string top, folder;  // where this hierarchy is mounted; the group's own folder, at or below it
  bool is_version_2 = false;
};

// Where to look, best first. `root`: where cgroups are mounted; `membership`: the file that says which ones a process is in.
// In a container the path in it may be the host's, and what is mounted is this group itself: so `top` follows each.
std::vector<MemoryCgroup> memory_cgroups(const std::string& root = "/sys/fs/cgroup",
                                         const std::string& membership = "/proc/self/cgroup");

struct CgroupMemory {
  std::optional<uint64_t> limit_bytes;  // the smallest of the group and of those above it; nullopt: none has one
  std::optional<uint64_t> free_bytes;   // below the limit that is nearest; page cache that can be dropped counts as free
};
CgroupMemory cgroup_memory(const MemoryCgroup& cgroup);

struct MachineMemory {
  uint64_t physical_bytes = 0;   // MemTotal
  uint64_t available_bytes = 0;  // MemAvailable: without swapping
  CgroupMemory cgroup;
  std::optional<uint64_t> address_space_limit_bytes, address_space_free_bytes;  // RLIMIT_AS, and what is left of it
  std::optional<uint64_t> data_limit_bytes, data_free_bytes;                    // RLIMIT_DATA

  uint64_t host_free_bytes() const;
  std::optional<uint64_t> process_free_bytes() const;  // nullopt: bounded by the host alone
};

// `proc` and `cgroups`: where those file systems are.
MachineMemory machine_memory(const std::string& proc = "/proc", const std::string& cgroups = "/sys/fs/cgroup");

// On the disk of a folder, or of the nearest one above it that exists; UINT64_MAX where the file system does not say.
uint64_t free_bytes(const std::string& path);

}  // namespace gannet
