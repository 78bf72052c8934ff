#include "observe/output.h"

#include <fcntl.h>
#include <gannet/log.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/format.h"

namespace gannet::observe {
namespace {

struct WriteFailure {
  std::string why;
};

[[noreturn]] void fail_with(int code) { throw WriteFailure{std::strerror(code)}; }

void write_all(int handle, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(handle, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_with(errno);
    bytes.remove_prefix(static_cast<size_t>(done));
  }
}

struct stat status_of(int handle) {
  struct stat status{};
  if (::fstat(handle, &status) != 0) fail_with(errno);
  return status;
}

}  // namespace

Output::~Output() {
  flush();
  close_all();
}

size_t Output::open(std::string path, std::string head) {
  File& file = files_.emplace_back();
  file.path = std::move(path);
  file.head = std::move(head);
  return files_.size() - 1;
}

void Output::add(size_t file, std::string_view bytes) {
  if (is_down_ && Clock::now() < retry_at_) {
    ++lost_;
    return;
  }
  files_[file].pending += bytes;
  ++files_[file].lines;
}

void Output::flush() {
  bool wrote = false;
  for (File& file : files_) {
    if (file.pending.empty()) continue;
    try {
      write(file);
      wrote = true;
    } catch (const WriteFailure& failure) {
      return fail(file.path, failure.why);
    }
  }
  if (!wrote || !is_down_) return;
  is_down_ = false;
  log_info(formatted("{}: can be written again; {} lines are missing", options_.who, lost_));
  lost_ = 0;
}

void Output::write(File& file) {
  if (file.handle < 0) {
    const auto folder = std::filesystem::path(file.path).parent_path();
    std::error_code failure;
    if (!folder.empty()) std::filesystem::create_directories(folder, failure);
    if (failure) throw WriteFailure{formatted("cannot make its folder: {}", failure.message())};
    // Opened without blocking, because the path may be a pipe without a reader.
    file.handle = ::open(file.path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (file.handle < 0) fail_with(errno);
    const struct stat status = status_of(file.handle);
    if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode)) throw WriteFailure{"it is not a file"};
    if (status.st_size == 0) {
      file.pending.insert(0, file.head);
    } else if (options_.is_text) {
      char last = '\n';
      if (::pread(file.handle, &last, 1, status.st_size - 1) == 1 && last != '\n') file.pending.insert(0, "\n");
    }
  }
  write_all(file.handle, file.pending);
  // Writing to a removed file succeeds; only the link count shows that the file was removed.
  if (status_of(file.handle).st_nlink == 0) throw WriteFailure{"somebody has removed the file"};
  file.pending.clear();
  file.lines = 0;
}

void Output::fail(const std::string& path, const std::string& why) {
  ++failures_;
  if (!is_down_) {
    log_warning(formatted("{}: cannot write {}: {}; training continues, the next attempt to write is in {} s", options_.who, path,
                          why, std::chrono::duration_cast<std::chrono::seconds>(options_.retry).count()));
  }
  is_down_ = true;
  retry_at_ = Clock::now() + options_.retry;
  for (File& file : files_) {
    lost_ += file.lines;
    file.lines = 0;
    file.pending.clear();
  }
  close_all();
}

void Output::close_all() {
  for (File& file : files_) {
    if (file.handle >= 0) ::close(file.handle);
    file.handle = -1;
  }
}

}  // namespace gannet::observe
