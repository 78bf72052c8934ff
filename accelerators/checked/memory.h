// The devices' memory: host memory that is mapped twice. Tensors hold the device's addresses, which nobody may read or write
// (PROT_NONE); kernels use the alias of the same bytes, a constant distance away. So a host access to device memory faults, as on
// a device with memory of its own, and fault.cpp says whose it was.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "clocks.h"

namespace gannet::accelerators::checked {

constexpr uint32_t kMostDevices = 8;
constexpr uint64_t kDeviceBytes = uint64_t{1} << 35;  // addresses of each device; memory is taken where it is used

class Memory {
 public:
  static Memory& get();  // never destroyed

  // What the devices have from now on. 0: as much as the host.
  void set_limit(uint64_t bytes_per_device);
  uint64_t limit() const;
  uint64_t free_bytes(uint32_t device) const;

  // A block of the device, of the current stream. Throws c10::OutOfMemoryError. Its contents are bytes 0xff: NaN in every
  // floating-point type.
  c10::DataPtr allocate(uint32_t device, uint64_t bytes);
  void free(uint64_t address);
  // The block is used on another stream than its own: c10's recordStream. So is pinned memory of LibTorch's by a copy that the
  // host does not wait for: LibTorch's allocators keep such memory until those streams are done.
  void record_use(const void* address, const Actor& actor);

  bool is_device(const void* address) const {
    const auto at = reinterpret_cast<uint64_t>(address);
    return at - base_ < kMostDevices * kDeviceBytes;
  }
  uint32_t device_of(const void* address) const {
    return static_cast<uint32_t>((reinterpret_cast<uint64_t>(address) - base_) / kDeviceBytes);
  }
  // Where kernels find the bytes; an address of the host is itself.
  template <class T>
  T* alias(T* address) const {
    return is_device(address) ? reinterpret_cast<T*>(reinterpret_cast<uint64_t>(address) + distance_) : address;
  }

  // What a message says of an address: its block, by number, size, and by shape and name where they are known.
  struct Described {
    uint64_t begin;
    std::string text;
  };
  Described describe(uint64_t address) const;
  void set_shape(const void* address, const std::string& shape);
  void set_name(const void* address, const std::string& name);

  // Page-locked host memory, of `owner`. pin throws sdk::Failure where some of it is pinned already, as drivers do; unpin where
  // none begins.
  enum class Owner { kLibTorch, kOthers };
  void pin(void* address, uint64_t bytes, Owner owner = Owner::kOthers);
  void unpin(void* address);  // a write of the host, for the checker
  bool is_pinned(const void* address) const;

 private:
  Memory();
  struct Block {
    uint64_t bytes, asked, number;
    Actor* actor;  // the stream that it was allocated for
    std::vector<const Actor*> users;
    std::string shape, name;
  };
  struct Device {
    std::map<uint64_t, uint64_t> free;  // bytes by address; neighbours are one
    std::set<std::pair<uint64_t, uint64_t>> by_bytes;
    uint64_t used = 0;
  };
  void add_free(Device& device, uint64_t address, uint64_t bytes);
  void remove_free(Device& device, uint64_t address, uint64_t bytes);
  std::map<uint64_t, Block>::const_iterator block_at(uint64_t address) const;

  uint64_t base_ = 0, distance_ = 0;
  uint64_t limit_ = 0;
  mutable std::mutex mutex_;  // of what follows
  std::vector<Device> devices_;
  std::map<uint64_t, Block> blocks_;
  uint64_t blocks_made_ = 0;
  struct Pinned {
    uint64_t bytes;
    Owner owner;
    std::vector<const Actor*> users;
  };
  std::map<uint64_t, Pinned>::const_iterator pinned_at(uint64_t address) const;
  std::map<uint64_t, Pinned> pinned_;  // by address
};

// LibTorch's allocators: of the current device, and of pinned host memory.
c10::Allocator* device_allocator();
c10::Allocator* pinned_allocator();

// A host access to a device's memory prints one sentence and a backtrace, and ends the process. Other faults go to the handler
// that was there before.
void catch_host_accesses();

}  // namespace gannet::accelerators::checked
