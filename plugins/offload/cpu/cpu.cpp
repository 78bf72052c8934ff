// Offload plugin "cpu": regions are host memory, which the core uses in place. read and write are
// copies that are complete when the call returns.
#include <array>
#include <cstring>
#include <gannet/sdk_offload.hpp>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "memory.h"

namespace {

using gannet::sdk::Failure;

// Copies of at least this size use the host's threads, in chunks too small to disturb a thread's
// cache.
constexpr uint64_t kParallelBytes = 1u << 20;
constexpr uint64_t kGrainBytes = 256u << 10;

struct Cpu : gannet::sdk::OffloadBase {
  struct Region {
    std::string name;
    uint64_t bytes;
    Memory memory;
  };
  struct Work {};
  static constexpr std::array<gannet_param_spec, 0> kParams{};

  using OffloadBase::OffloadBase;
  uint64_t alignment_bytes() const { return 1; }

  Region* allocate(uint64_t bytes, const std::string& name) {
    try {
      const std::lock_guard lock(mutex_);
      std::unique_ptr<Region> region(new Region{name, bytes, Memory(bytes, allocated_++)});
      Region* handle = region.get();
      regions_.emplace(handle, std::move(region));
      return handle;
    } catch (const std::bad_alloc&) {
      throw Failure(GANNET_OUT_OF_MEMORY, "no host memory for region '" + name + "' of " + std::to_string(bytes) +
                                              " bytes: use more ranks, a smaller model, or offload to \"nvme\"");
    }
  }
  void release(Region* region) {
    const std::lock_guard lock(mutex_);
    regions_.erase(region);
  }
  void* address(Region& region) { return region.memory.data(); }

  Work* read(Region& region, uint64_t offset, void* buffer, uint64_t bytes) {
    return copy(static_cast<char*>(buffer), region.memory.data() + offset, bytes);
  }
  Work* write(Region& region, uint64_t offset, const void* buffer, uint64_t bytes) {
    return copy(region.memory.data() + offset, static_cast<const char*>(buffer), bytes);
  }
  void wait(Work*) {}

 private:
  Work* copy(char* to, const char* from, uint64_t bytes) {
    if (bytes >= kParallelBytes)
      parallel_for(bytes, kGrainBytes, [&](uint64_t begin, uint64_t end) { std::memcpy(to + begin, from + begin, end - begin); });
    else if (bytes > 0)
      std::memcpy(to, from, bytes);
    return &done_;
  }

  std::mutex mutex_;
  std::unordered_map<Region*, std::unique_ptr<Region>> regions_;  // guarded by mutex_
  uint64_t allocated_ = 0;                                        // guarded by mutex_
  Work done_;  // shared by all calls: a copy is complete before it can be waited for
};

}  // namespace

GANNET_PLUGINS("offload/cpu", GANNET_TIER_STABLE, gannet::sdk::offload<Cpu>("cpu", "0.1.0", "host memory, worked on in place"))
