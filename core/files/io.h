// The file calls of this room: every failure is an Error(kIo) with what was done, the path, the reason and the free space.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/machine_memory.h"
#include "base/text.h"

namespace gannet::files {

// Owns a file descriptor; negative: none. The destructor cannot report a failed close: whoever writes calls close().
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  operator int() const { return number_; }
  void close(const std::string& path);  // checked: some file systems tell of a failed write only here

 private:
  int number_;
};

// "cannot <what> <path>: No space left on device; 12.0 MiB are free there". Error(kNotFound) for ENOENT and ENOTDIR. The advice
// on a missing permission depends on `what`: reading ("open", "examine", "list", "read") or writing (all others).
[[noreturn]] void io_failed(const std::string& what, const std::string& path, int code);

Descriptor open_file(const std::string& path, int flags);
// Opened for reading, and checked to be a regular file of at most `limit` bytes: never waits for a FIFO's writer, never reads a
// device. Else Error(kCorrupt).
std::string read_file(const std::string& path, uint64_t limit);
bool read_at(int file, char* to, uint64_t bytes, uint64_t offset);  // whether all of them were there
// Direct I/O that a file turns out not to take: from now on through the page cache, whichever thread noticed first.
bool give_up_direct_io(int file);
void write_at(int file, const char* from, uint64_t bytes, uint64_t offset, const std::string& path);  // short writes go on
void write_synced(const std::string& path, std::string_view text);  // created or overwritten, synced
void sync(int file, const std::string& path);
void sync_folder(const std::string& folder);
void rename_file(const std::string& from, const std::string& to);
// Whole or not at all: `write` makes a file beside it and syncs it, which then takes the place of `path`, on the disk too.
void replace_file(const std::string& path, const std::function<void(const std::string& beside)>& write);

struct Kind {
  bool exists = false, is_folder = false, is_file = false;
  uint64_t bytes = 0;
};
// Links are followed; one that leads nowhere, or in a circle, does not exist. Throws where even this cannot be told: a vanished
// mount, a folder that this user may not search.
Kind kind_of(const std::string& path);
// Sorted, without "." and "..". Throws Error(kNotFound) where there is no such folder, Error(kIo) where it cannot be read.
std::vector<std::string> names_in(const std::string& folder);
// The last part of a path, also of "run1/" and ".".
std::string last_name(const std::string& path);

using gannet::free_bytes;
using gannet::size_text;

}  // namespace gannet::files
