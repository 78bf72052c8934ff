// What the system lets this process have beside memory (machine_memory.h): limits, folders on disk, the network's interfaces.
// For people who read it; decides nothing.
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
  std::optional<uint64_t> locked_memory_bytes;               // `ulimit -l`; nullopt: without limit
  std::optional<uint64_t> open_files, open_files_hard;       // `ulimit -n`, and what it may be raised to
  std::optional<uint64_t> aio_requests, aio_requests_taken;  // fs.aio-max-nr, fs.aio-nr; nullopt: the kernel does not say
  std::optional<double> cores_of_cgroup;                     // processor time that the cgroup gives, in cores
};

// `proc` and `cgroups`: where those file systems are.
MachineLimits machine_limits(const std::string& proc = "/proc", const std::string& cgroups = "/sys/fs/cgroup");

struct FolderState {
  std::string folder;       // the one that was asked for, or the nearest above it that exists
  std::string file_system;  // "ext4", "tmpfs", "nfs"; its number where that is not known
  bool is_memory = false;   // tmpfs, ramfs: what lies in it takes memory
  uint64_t total_bytes = 0, free_bytes = 0;
  std::string not_writable;      // why no file can be made in it; "" where one could
  bool takes_direct_io = false;  // false also where no file can be made
};

// Makes a file without a lasting name in the folder and writes one block to it.
FolderState look_at(const std::string& folder);

struct NetworkInterface {
  std::string name, address;
  bool is_loopback = false;
};

// Those that are up and have an address, IPv4 first.
std::vector<NetworkInterface> network_interfaces();

// Why the name leads to no address, "" where it does.
std::string why_not_resolved(const std::string& host);

}  // namespace gannet
