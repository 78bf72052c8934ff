#include "base/machine_limits.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/format.h"
#include "base/machine_memory.h"

namespace gannet {
namespace {

std::optional<uint64_t> finite(rlim_t limit) { return limit == RLIM_INFINITY ? std::nullopt : std::optional<uint64_t>(limit); }

// The smallest number of cores that any of this process's cgroups allows. In version 2, "200000
// 100000" means two cores.
std::optional<double> cores_of(const std::string& cgroups, const std::string& membership) {
  std::optional<double> smallest;
  const auto take = [&](double quota, double period) {
    if (quota > 0 && period > 0) smallest = std::min(smallest.value_or(quota / period), quota / period);
  };
  std::vector<std::string> folders = {cgroups};
  for (const MemoryCgroup& group : memory_cgroups(cgroups, membership))
    for (std::filesystem::path path = group.folder; group.is_version_2; path = path.parent_path()) {
      folders.push_back(path.string());
      if (path == group.top || !path.has_relative_path()) break;
    }
  for (const std::string& folder : folders) {
    double quota = 0, period = 0;
    if (std::ifstream(formatted("{}/cpu.max", folder)) >> quota >> period) take(quota, period);  // "max": no limit
  }
  double quota = 0, period = 0;  // version 1: -1 means no limit
  if (std::ifstream(formatted("{}/cpu/cpu.cfs_quota_us", cgroups)) >> quota &&
      std::ifstream(formatted("{}/cpu/cpu.cfs_period_us", cgroups)) >> period)
    take(quota, period);
  return smallest;
}

// The numbers by which the kernel identifies file systems (from linux/magic.h and from the sources
// of the file systems).
constexpr std::pair<uint32_t, const char*> kFileSystems[] = {
    {0xEF53, "ext4"},      {0x58465342, "xfs"},   {0x9123683E, "btrfs"},   {0x2FC12FC1, "zfs"},     {0xF2F52010, "f2fs"},
    {0x01021994, "tmpfs"}, {0x858458F6, "ramfs"}, {0x794C7630, "overlay"}, {0x6969, "nfs"},         {0xFE534D42, "smb"},
    {0x01021997, "9p"},    {0x65735546, "fuse"},  {0x0BD00BD0, "lustre"},  {0x00C36400, "ceph"},    {0x19830326, "beegfs"},
    {0x47504653, "gpfs"},  {0x4D44, "vfat"},      {0x2011BAB0, "exfat"},   {0x73717368, "squashfs"}};

std::string name_of_file_system(uint32_t number) {
  for (const auto& [known, name] : kFileSystems)
    if (known == number) return name;
  char text[16];
  std::snprintf(text, sizeof(text), "0x%x", number);
  return text;
}

bool write_block_directly(const std::string& file) {
  constexpr size_t kBlock = 4096;
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
  if (descriptor < 0) return false;
  void* const block = std::aligned_alloc(kBlock, kBlock);
  std::memset(block, 0, kBlock);
  const bool done = ::pwrite(descriptor, block, kBlock, 0) == static_cast<ssize_t>(kBlock);
  std::free(block);
  ::close(descriptor);
  return done;
}

}  // namespace

MachineLimits machine_limits(const std::string& proc, const std::string& cgroups) {
  MachineLimits limits;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) limits.locked_memory_bytes = finite(limit.rlim_cur);
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limits.open_files = finite(limit.rlim_cur);
    limits.open_files_hard = finite(limit.rlim_max);
  }
  limits.aio_requests = first_number_in(formatted("{}/sys/fs/aio-max-nr", proc));
  limits.aio_requests_taken = first_number_in(formatted("{}/sys/fs/aio-nr", proc));
  limits.cores_of_cgroup = cores_of(cgroups, formatted("{}/self/cgroup", proc));
  return limits;
}

FolderState look_at(const std::string& folder) {
  FolderState state;
  std::error_code failed;
  std::filesystem::path nearest = std::filesystem::absolute(folder, failed);
  while (!std::filesystem::is_directory(nearest, failed) && nearest.has_relative_path()) nearest = nearest.parent_path();
  state.folder = nearest.string();
  struct statfs status{};
  if (::statfs(state.folder.c_str(), &status) == 0) {
    state.file_system = name_of_file_system(static_cast<uint32_t>(status.f_type));
    state.is_memory = state.file_system == "tmpfs" || state.file_system == "ramfs";
    state.total_bytes = static_cast<uint64_t>(status.f_blocks) * static_cast<uint64_t>(status.f_bsize);
    state.free_bytes = static_cast<uint64_t>(status.f_bavail) * static_cast<uint64_t>(status.f_bsize);
  }
  std::string file = formatted("{}/.gannet-probe-XXXXXX", state.folder);
  const int descriptor = ::mkostemp(file.data(), O_CLOEXEC);
  if (descriptor < 0) {
    state.not_writable = std::strerror(errno);
    return state;
  }
  state.takes_direct_io = write_block_directly(file);
  ::unlink(file.c_str());
  ::close(descriptor);
  return state;
}

std::vector<NetworkInterface> network_interfaces() {
  std::vector<NetworkInterface> found;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return found;
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* one = all; one; one = one->ifa_next) {
      if (!one->ifa_addr || one->ifa_addr->sa_family != family || !(one->ifa_flags & IFF_UP)) continue;
      char address[INET6_ADDRSTRLEN] = "";
      const void* bytes = family == AF_INET ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr)
                                            : &reinterpret_cast<sockaddr_in6*>(one->ifa_addr)->sin6_addr;
      ::inet_ntop(family, bytes, address, sizeof(address));
      found.push_back({one->ifa_name, address, (one->ifa_flags & IFF_LOOPBACK) != 0});
    }
  ::freeifaddrs(all);
  return found;
}

std::string why_not_resolved(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (found) ::freeaddrinfo(found);
  return code == 0 ? "" : ::gai_strerror(code);
}

}  // namespace gannet
