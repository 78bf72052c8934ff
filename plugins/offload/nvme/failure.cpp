#include "failure.h"

#include <sys/statvfs.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace nvme {
namespace {

const char* next_step(int code) {
  switch (code) {
    case ENOSPC:
    case EDQUOT:
      return "free some space there, or name another folder as nvme_path";
    case ENOMEM:
      return "the kernel is out of memory: lower aio.queue_depth, or what else runs on this host";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EACCES:
    case EPERM:
    case EROFS:
      return "make it writable for this user, or name another folder as nvme_path";
    case EINVAL:
      return "the file system may refuse direct transfers of this size: try another aio.block_size or nvme_path";
    default:
      return "the kernel's log (dmesg) says more of the drive; name another one as nvme_path if it is failing";
  }
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  const char* unit = "bytes";
  double value = static_cast<double>(bytes);
  for (const char* larger : {"KB", "MB", "GB", "TB"}) {
    if (value < 1000) break;
    value /= 1000;
    unit = larger;
  }
  char text[48];
  std::snprintf(text, sizeof(text), unit[0] == 'b' ? "%.0f %s" : "%.1f %s", value, unit);
  return text;
}

std::string errno_text(int code) {
  char buffer[128];
  return std::string(strerror_r(code, buffer, sizeof(buffer))) + " (errno " + std::to_string(code) + ")";
}

uint64_t free_bytes(const std::string& path) {
  struct statvfs space{};
  return ::statvfs(path.c_str(), &space) == 0 ? static_cast<uint64_t>(space.f_bavail) * space.f_frsize : 0;
}

std::string free_text(const std::string& nvme_path) {
  return bytes_text(free_bytes(nvme_path)) + " are free in '" + nvme_path + "'";
}

Failure system_failure(const std::string& attempt, int code, const std::string& nvme_path) {
  return Failure(code == ENOMEM ? GANNET_OUT_OF_MEMORY : GANNET_IO_ERROR,
                 attempt + " failed: " + errno_text(code) + "; " + free_text(nvme_path) + ": " + next_step(code));
}

}  // namespace nvme
