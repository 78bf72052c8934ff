// Wrappers for file calls. Unless noted otherwise, a failure throws Error(kIo), or Error(kNotFound)
// for a path that does not exist, with the operation, path, reason and free space.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/machine_memory.h"
#include "base/text.h"

namespace gannet::files {

// Owns a file descriptor; negative means none. The destructor cannot report a failed close, so
// writers must call close().
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  operator int() const { return number_; }
  void close(const std::string& path);  // checked: some file systems report a failed write only here

 private:
  int number_;
};

// Throws "cannot <what> <path>: No space left on device; 12.0 MiB are free there". Error(kNotFound)
// for ENOENT and ENOTDIR. The advice on a missing permission depends on whether `what` is reading
// ("open", "examine", "list", "read") or writing (anything else).
[[noreturn]] void io_failed(const std::string& what, const std::string& path, int code);

Descriptor open_file(const std::string& path, int flags);
// Reads a regular file of at most `limit` bytes. Throws Error(kCorrupt) for others, and Error(kUnsupported)
// for a known format other than JSON, YAML or text. Never waits for a FIFO's writer or reads a device.
std::string read_file(const std::string& path, uint64_t limit);
bool read_at(int file, char* to, uint64_t bytes, uint64_t offset);  // returns false on an error or at the end of the file
// Switches a file that rejected direct I/O to the page cache, for all threads that use it; false on an error.
bool give_up_direct_io(int file);
void write_at(int file, const char* from, uint64_t bytes, uint64_t offset, const std::string& path);  // continues short writes
void write_synced(const std::string& path, std::string_view text);  // creates or overwrites the file, and syncs it
void sync(int file, const std::string& path);
void sync_folder(const std::string& folder);
void rename_file(const std::string& from, const std::string& to);
// Replaces a file completely or not at all: `write` writes and syncs a file beside `path`. That
// file is then renamed to `path`, and the folder is synced.
void replace_file(const std::string& path, const std::function<void(const std::string& beside)>& write);

struct PathKind {
  bool exists = false, is_folder = false, is_file = false;
  uint64_t bytes = 0;
};
// Follows links; a dangling or circular link counts as missing. Throws if the status cannot be
// determined: a vanished mount, or a folder that this user may not search.
PathKind kind_of(const std::string& path);
// Returns the sorted names in a folder, without "." and "..". Throws Error(kNotFound) if there is
// no such folder, Error(kIo) if it cannot be read.
std::vector<std::string> names_in(const std::string& folder);
// Returns the last component of a path; works for "run1/" and "." as well.
std::string last_name(const std::string& path);

using gannet::free_bytes;
using gannet::size_text;

}  // namespace gannet::files
