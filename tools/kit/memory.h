// Memory that detects invalid accesses by a plugin: inaccessible pages around each buffer, canaries
// in between, and write protection where the contract says "never written".
//
//   Buffer grad(numel * 4, "the gradient");
//   { const ReadOnlyGuard held(grad); api->update(...); }      // a write ends the process, and the report names the buffer
//   if (!grad.is_intact()) ...                            // a write just outside of it
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gannet::kit {

class Buffer {
 public:
  // The buffer is zeroed and aligned to `alignment` bytes, at most a page. `tight`: its end,
  // rounded up to the alignment, is at an inaccessible page, so that an overrun faults. Otherwise
  // at least 64 spare bytes follow it, for checks that must not fail because of an overrun.
  Buffer() = default;
  Buffer(size_t bytes, const std::string& name, bool tight = false, size_t alignment = 64);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  // Whether the bytes just before and just after the buffer are unchanged. `where` receives the
  // position of a stray write: "3 bytes after its end".
  bool is_intact(std::string* where = nullptr) const;
  void set_writable(bool on) const;
  // Forbids reads and writes from here on: any use of a kept pointer faults.
  void forbid() const;

 private:
  char* memory_ = nullptr;  // guard page, pages, guard page
  size_t length_ = 0, bytes_ = 0;
  void* data_ = nullptr;
};

class ReadOnlyGuard {
 public:
  explicit ReadOnlyGuard(const Buffer& buffer, bool on = true) : buffer_(on ? &buffer : nullptr) {
    if (buffer_) buffer_->set_writable(false);
  }
  ~ReadOnlyGuard() {
    if (buffer_) buffer_->set_writable(true);
  }
  ReadOnlyGuard(const ReadOnlyGuard&) = delete;

 private:
  const Buffer* buffer_;
};

// From here on a forbidden access to a Buffer's memory is described in place().fault before it ends
// the process.
void report_bad_accesses();

}  // namespace gannet::kit
