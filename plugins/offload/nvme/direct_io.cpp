#include "direct_io.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "failure.h"
#include "options.h"

namespace nvme {
namespace {

// Writes a page, because opening a file may succeed on file systems that fail the first transfer.
int direct_write_errno(const JobFolder& folder) {
  const FileHandle file = folder.create_file("probe", O_DIRECT);
  if (!file.is_open()) return errno;
  const std::unique_ptr<void, decltype(&std::free)> page(std::aligned_alloc(kAlignment, kAlignment), &std::free);
  if (!page) throw std::bad_alloc();
  std::memset(page.get(), 0, kAlignment);
  ssize_t written;
  do written = ::pwrite(file.get(), page.get(), kAlignment, 0);
  while (written < 0 && errno == EINTR);
  return written < 0 ? errno : 0;
}

bool is_in_memory(const std::string& path) {
  struct statfs system{};
  return ::statfs(path.c_str(), &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

}  // namespace

DirectIo try_direct_io(const JobFolder& folder) {
  const std::string path = "nvme_path '" + folder.nvme_path() + "'";
  if (is_in_memory(folder.nvme_path()))
    return {false, path +
                       " is on a file system in memory (tmpfs): what is offloaded there takes this host's memory still; "
                       "name a folder on an NVMe drive, or offload to \"cpu\""};
  const int code = direct_write_errno(folder);
  if (code == 0) return {};
  if (code != EINVAL && code != EOPNOTSUPP)
    throw system_failure("writing a first page into '" + folder.path() + "'", code, folder.nvme_path());
  return {false, path +
                     " is on a file system that takes no direct I/O: transfers go through the page cache, which is slower and "
                     "takes this host's memory; name a folder on a local drive (ext4, xfs) if there is one"};
}

}  // namespace nvme
