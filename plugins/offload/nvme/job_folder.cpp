#include "job_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "failure.h"

namespace nvme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "lock";

[[noreturn]] void refuse(const std::string& why) { throw Failure(GANNET_INVALID_ARGUMENT, "nvme_path " + why); }

void check_path(const std::string& path) {
  if (path.empty()) refuse("is empty: name a folder on the NVMe drive, as \"/local/nvme\"");
  if (path[0] != '/')
    refuse("'" + path +
           "' is relative, and the working folder may differ from rank to rank: write the whole path, from the root");
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      refuse("'" + path + "' does not exist: create it (mkdir -p '" + path + "') or name another folder");
    refuse("'" + path + "' cannot be looked at: " + errno_text(errno) +
           "; make it readable for this user or name another folder");
  }
  if (!S_ISDIR(found.st_mode)) refuse("'" + path + "' is not a folder: name the folder that swap files may be made in");
}

std::string new_id() {
  uint64_t bits = 0;
  if (::getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) bits = static_cast<uint64_t>(::getpid());
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, bits);
  return text;
}

bool is_job_folder(const std::string& name) {
  uint64_t id = 0;
  uint32_t rank = 0;
  int end = 0;
  return std::sscanf(name.c_str(), "gannet-%16" SCNx64 "-rank%" SCNu32 "%n", &id, &rank, &end) == 2 &&
         static_cast<size_t>(end) == name.size();
}

// Opens and locks the lock file of `folder`. Returns a closed handle, with errno set, if either fails
// or another process has just removed the file.
FileHandle take_lock(const std::string& folder, int flags) {
  const std::string path = folder + "/" + kLock;
  FileHandle lock(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
  struct stat locked{}, there{};
  if (!lock.is_open() || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return {};
  // Between open and flock another job may have removed the folder as a leftover.
  if (::fstat(lock.get(), &locked) != 0 || ::stat(path.c_str(), &there) != 0 || locked.st_ino != there.st_ino) {
    errno = ENOENT;
    return {};
  }
  return lock;
}

// Removes the folders of dead jobs, whose locks are free. A folder that cannot be removed (because
// it is another user's) stays; it holds no data.
uint64_t remove_left_overs(const std::string& nvme_path) {
  uint64_t removed = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(nvme_path, ignored)) {
    if (!is_job_folder(entry.path().filename()) || !entry.is_directory(ignored) || entry.is_symlink(ignored)) continue;
    const FileHandle lock = take_lock(entry.path(), 0);
    if (lock.is_open())
      removed += fs::remove_all(entry.path(), ignored) > 0;
    else if (errno == ENOENT)  // its creator may be alive (and retry) or dead: remove it only if empty
      ::rmdir(entry.path().c_str());
  }
  return removed;
}

}  // namespace

JobFolder::JobFolder(const std::string& nvme_path, uint32_t rank) : nvme_path_(nvme_path) {
  while (nvme_path_.size() > 1 && nvme_path_.back() == '/') nvme_path_.pop_back();
  check_path(nvme_path_);
  removed_ = remove_left_overs(nvme_path_);
  constexpr int kAttempts = 16;  // an attempt fails only if another job starts at the same moment
  for (int attempt = 1;; ++attempt) {
    path_ = nvme_path_ + "/gannet-" + new_id() + "-rank" + std::to_string(rank);
    if (::mkdir(path_.c_str(), 0700) != 0) {
      if (errno == EACCES || errno == EPERM || errno == EROFS)
        refuse("'" + nvme_path_ + "' cannot be written in: " + errno_text(errno) +
               "; make it writable for this user or name another folder");
      if (errno != EEXIST || attempt == kAttempts) throw system_failure("making the folder '" + path_ + "'", errno, nvme_path_);
      continue;
    }
    lock_ = take_lock(path_, O_CREAT);
    if (lock_.is_open()) return;
    const int code = errno;
    ::rmdir(path_.c_str());
    if (attempt == kAttempts) throw system_failure("locking the folder '" + path_ + "'", code, nvme_path_);
  }
}

JobFolder::~JobFolder() {
  ::unlink((path_ + "/" + kLock).c_str());
  ::rmdir(path_.c_str());
}

FileHandle JobFolder::create_file(const std::string& name, int flags) const {
  const std::string path = path_ + "/" + name;
  FileHandle file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | flags, 0600));
  const int code = errno;
  // A file system that refuses O_DIRECT may still have created the file.
  if (::unlink(path.c_str()) != 0 && file.is_open()) throw system_failure("unlinking '" + path + "'", errno, nvme_path_);
  errno = code;
  return file;
}

}  // namespace nvme
