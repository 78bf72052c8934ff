// Limits of this process other than memory (machine_memory.h): resource limits, folders on disk,
// network interfaces. They are for reports that people read; only check_folder() acts on them.
//
//   machine_limits().open_files;                    // 1024
//   look_at("/local_nvme").takes_direct_io;         // true
//   network_interfaces();                           // {{"lo", "127.0.0.1", true}, {"eth0", "10.0.0.5", false}}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gannet {

struct MachineLimits {
  std::optional<uint64_t> locked_memory_bytes;               // `ulimit -l`; nullopt: no limit
  std::optional<uint64_t> open_files, open_files_hard;       // `ulimit -n`, and the maximum that it may be raised to
  std::optional<uint64_t> aio_requests, aio_requests_taken;  // fs.aio-max-nr and fs.aio-nr; nullopt: unknown
  std::optional<double> cores_of_cgroup;                     // CPU time that the cgroup allows, in cores; nullopt: no limit
};

// `proc` and `cgroups` are the mount points of those file systems.
MachineLimits machine_limits(const std::string& proc = "/proc", const std::string& cgroups = "/sys/fs/cgroup");

struct FolderState {
  std::string folder;       // the requested folder, or its nearest existing ancestor
  std::string file_system;  // the name, or the number if the name is unknown
  bool is_memory = false;   // tmpfs or ramfs, where files take up memory
  uint64_t total_bytes = 0, free_bytes = 0;
  std::string not_writable;      // why no file can be created in it; "" if one can
  bool takes_direct_io = false;  // also false if no file can be created
};

// Examines a folder. Creates a temporary file in it, writes one block to the file and removes it.
FolderState look_at(const std::string& folder);

struct NetworkInterface {
  std::string name, address;
  bool is_loopback = false;
};

// Interfaces that are up and have an address, IPv4 first.
std::vector<NetworkInterface> network_interfaces();

// The reason why the host name does not resolve to an address; "" if it does.
std::string why_not_resolved(const std::string& host);

}  // namespace gannet
