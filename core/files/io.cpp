#include "files/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <gannet/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/first_bytes.h"
#include "base/format.h"

namespace gannet::files {

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

void Descriptor::close(const std::string& path) {
  const int number = number_;
  number_ = -1;
  // On Linux an interrupted close has released the descriptor: a retry could close a descriptor
  // that another thread has just opened.
  if (::close(number) != 0 && errno != EINTR) io_failed("close", path, errno);
}

namespace {

bool is_reading(const std::string& what) {
  for (const char* verb : {"open", "read", "examine", "list"})
    if (what.starts_with(verb)) return true;
  return false;
}

}  // namespace

void io_failed(const std::string& what, const std::string& path, int code) {
  const bool missing = code == ENOENT || code == ENOTDIR;
  std::string text = formatted("cannot {} {}: {}", what, path, std::strerror(code));
  std::string advice;
  if (code == EACCES || code == EPERM || code == EROFS)
    advice = is_reading(what) ? "let this user read it: the permissions of the file and of each folder on its path count"
                              : "choose a folder that this user may write to";
  if (code == ESTALE || code == ENOTCONN || code == ENODEV || code == ENXIO) advice = "is the file system still mounted?";
  if (!missing) {
    const uint64_t free = free_bytes(path);
    if (free != UINT64_MAX) text += formatted("; {} are free there", size_text(free));
    if (code == ENOSPC || code == EDQUOT) advice = "make room, or choose a folder on another disk";
  }
  throw Error(missing ? ErrorCode::kNotFound : ErrorCode::kIo, text, advice);
}

Descriptor open_file(const std::string& path, int flags) {
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (file < 0) io_failed(flags & O_CREAT ? "create" : (flags & O_ACCMODE) == O_RDONLY ? "open" : "write to", path, errno);
  return file;
}

std::string read_file(const std::string& path, uint64_t limit) {
  Descriptor file = open_file(path, O_RDONLY | O_NONBLOCK);  // so that opening a FIFO does not wait
  struct stat status{};
  if (::fstat(file, &status) != 0) io_failed("examine", path, errno);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorCode::kCorrupt, formatted("{} is not a regular file", path));
  if (static_cast<uint64_t>(status.st_size) > limit)
    throw Error(ErrorCode::kCorrupt,
                formatted("{} has {}, at most {} are read", path, size_text(status.st_size), size_text(limit)));
  std::string text(status.st_size, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(file, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) io_failed("read", path, errno);
    if (count == 0) break;  // the file was truncated meanwhile; its checksum will show that
    done += count;
  }
  text.resize(done);
  // This function reads small text files, mostly JSON; the caller checks the content.
  require_format(std::string_view(text).substr(0, kHeadBytes), text.size(), path,
                 {Format::kEmpty, Format::kJson, Format::kYaml, Format::kText});
  return text;
}

bool read_at(int file, char* to, uint64_t bytes, uint64_t offset) {
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t count = ::pread(file, to + done, bytes - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += count;
  }
  return true;
}

bool give_up_direct_io(int file) {
  const int flags = ::fcntl(file, F_GETFL);
  return flags >= 0 && (!(flags & O_DIRECT) || ::fcntl(file, F_SETFL, flags & ~O_DIRECT) == 0);
}

void write_at(int file, const char* from, uint64_t bytes, uint64_t offset, const std::string& path) {
  bool is_direct = true;  // as far as this call knows; other threads write to the same file
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t count = ::pwrite(file, from + done, bytes - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EINVAL) {  // the file system rejects direct I/O after all, or the rest of a short write
      if (std::exchange(is_direct, false) && give_up_direct_io(file)) continue;
      errno = EINVAL;
    }
    if (count <= 0)
      io_failed(formatted("write {} at byte {} of", size_text(bytes - done), offset + done), path, count < 0 ? errno : ENOSPC);
    done += count;
  }
}

void write_synced(const std::string& path, std::string_view text) {
  Descriptor file = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
  write_at(file, text.data(), text.size(), 0, path);
  sync(file, path);
  file.close(path);
}

void sync(int file, const std::string& path) {
  while (::fsync(file) != 0)
    if (errno != EINTR) io_failed("sync", path, errno);
}

void sync_folder(const std::string& folder) {
  Descriptor directory = open_file(folder, O_RDONLY | O_DIRECTORY);
  while (::fsync(directory) != 0) {
    if (errno == EINVAL || errno == ENOTSUP) return;  // this file system does not sync folders
    if (errno != EINTR) io_failed("sync the folder", folder, errno);
  }
}

void rename_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) io_failed(formatted("rename {} to", from), to, errno);
}

void replace_file(const std::string& path, const std::function<void(const std::string& beside)>& write) {
  // The file is in the same folder, since rename() is atomic only within one file system.
  const std::string beside = formatted("{}.tmp-{}", path, ::getpid());
  try {
    write(beside);
    rename_file(beside, path);
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
  // The rename is durable only once the folder is synced.
  const auto slash = path.rfind('/');
  sync_folder(slash == std::string::npos ? "." : path.substr(0, slash + 1));
}

PathKind kind_of(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) return {};
    io_failed("examine", path, errno);
  }
  return {true, S_ISDIR(status.st_mode), S_ISREG(status.st_mode), static_cast<uint64_t>(status.st_size)};
}

std::vector<std::string> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder.c_str()), &::closedir);
  if (!directory) {
    if (errno == ENOENT) throw Error(ErrorCode::kNotFound, formatted("there is no folder {}", folder), "check the path");
    if (errno == ENOTDIR) throw Error(ErrorCode::kNotFound, formatted("{} is a file, not a folder", folder));
    io_failed("open the folder", folder, errno);
  }
  std::vector<std::string> names;
  for (;;) {
    // readdir() returns null both at the end and on an error; only errno distinguishes them.
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (!entry && errno != 0) io_failed("list the folder", folder, errno);
    if (!entry) break;
    if (std::string(entry->d_name) != "." && std::string(entry->d_name) != "..") names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string last_name(const std::string& path) {
  std::error_code failure;
  const auto whole = std::filesystem::weakly_canonical(path, failure);
  const std::filesystem::path named = failure ? std::filesystem::path(path).lexically_normal() : whole;
  return named.has_filename() ? named.filename().string() : named.parent_path().filename().string();
}

}  // namespace gannet::files
