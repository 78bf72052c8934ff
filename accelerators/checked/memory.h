// Device memory: host memory that is mapped twice. Tensors hold device addresses, which the host
// may not access (PROT_NONE). Kernels use an alias of the same bytes at a constant offset. A host
// access to device memory therefore faults, as on a device with separate memory, and fault.cpp
// names the block.
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
constexpr uint64_t kDeviceBytes = uint64_t{1} << 35;  // address range of each device; pages are allocated on first use

class Memory {
 public:
  static Memory& get();  // never destroyed

  // Sets the size of each device's memory, at most kDeviceBytes. 0 means as much as the host has.
  void set_limit(uint64_t bytes_per_device);
  uint64_t limit() const;
  uint64_t free_bytes(uint32_t device) const;

  // Allocates a block on the current stream of the device. Throws c10::OutOfMemoryError. The block
  // is filled with 0xff bytes: NaN in every floating-point type.
  c10::DataPtr allocate(uint32_t device, uint64_t bytes);
  void free(uint64_t address);
  // Records that an actor other than the owning stream uses the memory (c10's recordStream), or
  // that a non-blocking copy uses LibTorch's pinned memory. LibTorch's allocators keep such memory
  // until those actors are done.
  void record_use(const void* address, const Actor& actor);

  bool is_device(const void* address) const {
    const auto at = reinterpret_cast<uint64_t>(address);
    return at - base_ < kMostDevices * kDeviceBytes;
  }
  uint32_t device_of(const void* address) const {
    return static_cast<uint32_t>((reinterpret_cast<uint64_t>(address) - base_) / kDeviceBytes);
  }
  // Returns the address that kernels use. A host address is returned unchanged.
  template <class T>
  T* alias(T* address) const {
    return is_device(address) ? reinterpret_cast<T*>(reinterpret_cast<uint64_t>(address) + distance_) : address;
  }

  // Describes the block at an address, for messages: its number and size, and its shape and name if
  // they are known.
  struct BlockDescription {
    uint64_t begin;
    std::string text;
  };
  BlockDescription describe(uint64_t address) const;
  void set_shape(const void* address, const std::string& shape);
  void set_name(const void* address, const std::string& name);

  // pin records host memory as pinned by `owner`. It throws sdk::Failure if the range is empty or overlaps
  // pinned memory, as drivers do. unpin throws if no pinned range begins at the address.
  enum class PinOwner { kLibTorch, kOthers };
  void pin(void* address, uint64_t bytes, PinOwner owner = PinOwner::kOthers);
  void unpin(void* address);  // counts as a write by the host
  bool is_pinned(const void* address) const;

 private:
  Memory();
  struct Block {
    uint64_t bytes, asked, number;
    Actor* actor;  // the stream that owns the block
    std::vector<const Actor*> users;
    std::string shape, name;
  };
  struct Device {
    std::map<uint64_t, uint64_t> free;  // sizes by address; adjacent ranges are merged
    std::set<std::pair<uint64_t, uint64_t>> by_bytes;
    uint64_t used = 0;
  };
  void add_free(Device& device, uint64_t address, uint64_t bytes);
  void remove_free(Device& device, uint64_t address, uint64_t bytes);
  std::map<uint64_t, Block>::const_iterator block_at(uint64_t address) const;

  uint64_t base_ = 0, distance_ = 0;
  uint64_t limit_ = 0;
  mutable std::mutex mutex_;  // guards the members below
  std::vector<Device> devices_;
  std::map<uint64_t, Block> blocks_;
  uint64_t blocks_made_ = 0;
  struct PinnedRange {
    uint64_t bytes;
    PinOwner owner;
    std::vector<const Actor*> users;
  };
  std::map<uint64_t, PinnedRange>::const_iterator pinned_at(uint64_t address) const;
  std::map<uint64_t, PinnedRange> pinned_;  // by address
};

// LibTorch's allocators for the current device and for pinned host memory.
c10::Allocator* device_allocator();
c10::Allocator* pinned_allocator();

// Installs a fault handler. If the host accesses device memory, the handler prints an error message
// and a backtrace, and ends the process. Other faults go to the previous handler.
void catch_host_accesses();

}  // namespace gannet::accelerators::checked
