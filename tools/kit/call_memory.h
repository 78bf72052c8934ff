// Copies of a call's structs and lists, each in its own memory, which can be write-protected and
// ends exactly where the struct ends.
//
//   CallMemory memory(options.minor, options.appended_bytes);
//   const gannet_update_args* given = memory.copied(args, "gannet_update_args");
//   memory.protect();                           // a write from here on faults, and the report names the struct
#pragma once

#include <gannet/abi.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "kit/memory.h"

namespace gannet::kit {

// The size of a struct in a minor version of ABI 2: up to the first newer field.
inline size_t bytes_in(const gannet_update_args*, uint32_t minor) {
  return minor == 0   ? offsetof(gannet_update_args, seed)
         : minor == 1 ? offsetof(gannet_update_args, second_grad)
         : minor == 2 ? offsetof(gannet_update_args, device_numbers)
         : minor == 3 ? offsetof(gannet_update_args, loss)
                      : sizeof(gannet_update_args);
}
inline size_t bytes_in(const gannet_step_args*, uint32_t minor) {
  return minor == 0 ? offsetof(gannet_step_args, seed) : minor < 4 ? offsetof(gannet_step_args, loss) : sizeof(gannet_step_args);
}
inline size_t bytes_in(const gannet_segment*, uint32_t minor) {
  return minor == 0 ? offsetof(gannet_segment, seed) : sizeof(gannet_segment);
}
inline size_t bytes_in(const gannet_tensor*, uint32_t minor) {
  return minor == 0 ? offsetof(gannet_tensor, seed) : sizeof(gannet_tensor);
}
inline size_t bytes_in(const gannet_optimizer_description*, uint32_t minor) {
  return minor == 0 ? offsetof(gannet_optimizer_description, workspace_bytes) : sizeof(gannet_optimizer_description);
}
inline size_t bytes_in(const gannet_host*, uint32_t minor) {
  return minor < 4 ? offsetof(gannet_host, metric) : sizeof(gannet_host);
}
inline size_t bytes_in(const gannet_schedule_query*, uint32_t minor) {
  return minor == 0 ? offsetof(gannet_schedule_query, total_steps) : sizeof(gannet_schedule_query);
}
inline size_t bytes_in(const gannet_schedule_advance*, uint32_t minor) {
  return minor == 0 ? offsetof(gannet_schedule_advance, total_steps) : sizeof(gannet_schedule_advance);
}
template <class T>
size_t bytes_in(const T*, uint32_t) {
  return sizeof(T);
}

class CallMemory {
 public:
  CallMemory(uint32_t minor, uint64_t appended_bytes) : minor_(minor), appended_(appended_bytes) {}
  // Addresses are not reused for a number of calls: an access through a kept pointer faults.
  ~CallMemory() {
    static auto& retired = *new std::deque<Buffer>;
    static auto& mutex = *new std::mutex;
    const std::lock_guard lock(mutex);
    for (Buffer& buffer : buffers_) {
      buffer.forbid();
      retired.push_back(std::move(buffer));
      if (retired.size() > 1000) retired.pop_front();
    }
  }
  CallMemory(const CallMemory&) = delete;

  // Copies a struct, with struct_size as in this minor version. Null stays null.
  template <class T>
  T* copied(const T* from, const char* name) {
    return from ? static_cast<T*>(put(from, name, 1, 0).data()) : nullptr;
  }
  // Copies an array of structs; the stride of the copy is stride_of<T>().
  template <class T>
  T* list(const T* first, uint64_t count, uint64_t stride, const char* name) {
    return first ? static_cast<T*>(put(first, name, count, stride).data()) : nullptr;
  }
  template <class T>
  uint64_t stride_of() const {
    return bytes_in(static_cast<const T*>(nullptr), minor_) + appended_;
  }
  template <class T>
  T& at(T* first, uint64_t i) const {
    return *reinterpret_cast<T*>(reinterpret_cast<char*>(first) + i * stride_of<T>());
  }
  // Copies plain values: pointers, numbers, the characters of a string.
  template <class T>
  T* values(const T* first, uint64_t count, const char* name) {
    if (!first) return nullptr;
    Buffer& buffer = buffers_.emplace_back(count * sizeof(T), name, true, alignof(T));
    if (count > 0) std::memcpy(buffer.data(), first, count * sizeof(T));
    return static_cast<T*>(buffer.data());
  }
  const char* text(const char* from, const char* name) { return from ? values(from, std::strlen(from) + 1, name) : nullptr; }

  void protect() {
    for (const Buffer& buffer : buffers_) buffer.set_writable(false);
  }

 private:
  static constexpr unsigned char kNewer = 0x5a;  // fills the fields of later minor versions

  template <class T>
  Buffer& put(const T* first, const char* name, uint64_t count, uint64_t stride) {
    const size_t known = bytes_in(first, minor_), bytes = known + appended_;
    Buffer& buffer = buffers_.emplace_back(count * bytes, name, true, 8);
    std::memset(buffer.data(), kNewer, count * bytes);
    for (uint64_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, reinterpret_cast<const char*>(first) + i * stride, sizeof(T));
      value.struct_size = static_cast<uint32_t>(bytes);
      std::memcpy(buffer.as<char>() + i * bytes, &value, known);
    }
    return buffer;
  }

  uint32_t minor_;
  uint64_t appended_;
  std::deque<Buffer> buffers_;
};

}  // namespace gannet::kit
