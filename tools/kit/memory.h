// Memory that notices what a plugin does to it: pages that it may not read around each buffer, canaries in between, and a right
// to write that is taken away where the contract says "never written".
//
//   Buffer grad(numel * 4, "the gradient");
//   { const ReadOnly held(grad); api->update(...); }      // a write ends the process, and the report names the buffer
//   if (!grad.is_intact()) ...                            // a write just outside of it
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gannet::kit {

class Buffer {
 public:
  // Aligned to 64 bytes, zeroed. `tight`: it ends where the memory ends, so that the first byte behind its last 64 is a fault;
  // else there is room behind it, so that a check of something else does not fail by it.
  Buffer() = default;
  Buffer(size_t bytes, const std::string& name, bool tight = false);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  // Nothing was written to the room before it and behind it. `where`: how many bytes before or behind, where it was.
  bool is_intact(std::string* where = nullptr) const;
  void set_writable(bool on) const;
  // Neither read nor write from here on: what was kept of its address is a fault.
  void forbid() const;

 private:
  char* memory_ = nullptr;  // guard page, pages, guard page
  size_t length_ = 0, bytes_ = 0;
  void* data_ = nullptr;
};

class ReadOnly {
 public:
  explicit ReadOnly(const Buffer& buffer, bool on = true) : buffer_(on ? &buffer : nullptr) {
    if (buffer_) buffer_->set_writable(false);
  }
  ~ReadOnly() {
    if (buffer_) buffer_->set_writable(true);
  }
  ReadOnly(const ReadOnly&) = delete;

 private:
  const Buffer* buffer_;
};

// From here on an access to memory of a Buffer that is not allowed is told in place().fault before the process ends by it.
void report_bad_accesses();

}  // namespace gannet::kit
