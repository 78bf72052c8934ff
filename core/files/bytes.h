// Untrusted bytes (of a file or in memory), read at any offset or front to back. Errors name the
// offset.
#pragma once

#include <gannet/error.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::files {

// Throws Error(kCorrupt): "<path>: at byte 120: <what>".
[[noreturn]] void corrupt(const std::string& path, uint64_t offset, const std::string& what);
// Formats text from a file for a message: quoted, shortened, with control characters escaped.
std::string shown(std::string_view text);

// Read-only random access to a fixed number of bytes. A Cursor keeps a reference, so the object
// must outlive its cursors.
class Bytes {
 public:
  virtual ~Bytes() = default;
  virtual const std::string& path() const = 0;
  virtual uint64_t size() const = 0;
  // Reads all of [offset, offset + bytes), which must be within size(). Thread-safe.
  virtual void read(char* to, uint64_t bytes, uint64_t offset) const = 0;
};

std::unique_ptr<Bytes> open_bytes(const std::string& path);  // opens a file

class MemoryBytes : public Bytes {  // another object's memory
 public:
  MemoryBytes(std::string_view bytes, std::string path) : bytes_(bytes), path_(std::move(path)) {}
  const std::string& path() const override { return path_; }
  uint64_t size() const override { return bytes_.size(); }
  void read(char* to, uint64_t bytes, uint64_t offset) const override { bytes_.copy(to, bytes, offset); }

 private:
  // Not owned: the caller keeps the memory alive.
  std::string_view bytes_;
  std::string path_;
};

// Reads bytes [begin, end) front to back through a window. The window grows only for a value larger
// than it, and only after the value's length was checked against the bytes left. Numbers are
// little-endian.
class Cursor {
 public:
  Cursor(const Bytes& bytes, uint64_t begin, uint64_t end, uint64_t window = 64 << 10);
  uint64_t offset() const { return window_begin_ + at_; }  // in the file
  uint64_t left() const { return end_ - offset(); }
  const std::string& path() const { return bytes_.path(); }

  std::string_view take(uint64_t count, const char* what);  // valid until the next call; `what` is for the message: "a string"
  void need(uint64_t count, const char* what) const;        // throws Error(kCorrupt) if fewer are left
  void skip(uint64_t count, const char* what);
  std::string text(uint64_t count, const char* what);  // returns a copy; does not grow the window
  std::string_view line(const char* what);             // returns the bytes up to the next line feed, which it consumes
  template <class Number>
  Number number(const char* what) {
    Number value{};
    take(sizeof(value), what).copy(reinterpret_cast<char*>(&value), sizeof(value));
    return value;
  }
  [[noreturn]] void corrupt(const std::string& what) const { files::corrupt(path(), offset(), what); }

 private:
  void fill(uint64_t count);  // reads until the window holds `count` bytes from here, or all that are left
  const Bytes& bytes_;
  // File offsets: the end of the cursor's range, and the byte in window_[0].
  uint64_t end_, window_begin_;
  uint64_t at_ = 0;  // in the window
  // window_[0, filled_) holds the file's bytes from window_begin_; at_ <= filled_ <=
  // window_.size().
  std::vector<char> window_;
  uint64_t filled_ = 0;  // number of bytes in the window
};

}  // namespace gannet::files
