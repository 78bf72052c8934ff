// An Offload plugin's object, used through its C table, buffers aligned for a tier, and checks of a
// region's contents.
//
//   Tier tier(subject, 0);
//   void* region = tier.allocate(bytes, "moments");
//   GuardedBytes bytes = tier.bytes(3 * tier.alignment(), 7);       // pseudo-random, aligned, between canaries
//   tier.write(region, 0, bytes);
//   require_same(tier.read(region, 0, bytes.size()), bytes, "what was written");
#pragma once

#include <gannet/abi.h>

#include <string>
#include <vector>

#include "interfaces/host.h"
#include "kit/memory.h"
#include "kit/object.h"

namespace gannet::kit {

// Memory between canaries, with the tier's alignment; for an alignment of 1, at an odd address.
class GuardedBytes {
 public:
  GuardedBytes(uint64_t alignment, uint64_t count, uint64_t seed);
  GuardedBytes(GuardedBytes&& other) noexcept = default;
  char* data() const { return data_; }
  uint64_t size() const { return count_; }
  void fill(uint64_t seed);
  bool is_zero() const;
  // Whether nothing was written just outside it.
  bool is_intact() const;

 private:
  Buffer buffer_;
  char* data_ = nullptr;
  uint64_t count_ = 0;
};

// Throws CheckFailure with the first byte that differs.
void require_same(const GuardedBytes& found, const GuardedBytes& expected, const std::string& what);

class Tier {
 public:
  Tier(const Subject& subject, uint32_t rank, const gannet_host* host = nullptr);
  ~Tier();
  Tier(const Tier&) = delete;

  uint64_t alignment() const { return alignment_; }
  uint64_t rounded(uint64_t bytes) const { return (bytes + alignment_ - 1) / alignment_ * alignment_; }
  GuardedBytes bytes(uint64_t count, uint64_t seed) const { return {alignment_, count, seed}; }
  const gannet_offload_api& api() const { return api_; }
  void* self() const { return self_; }

  CallOutcome try_allocate(uint64_t bytes, const std::string& name, void** region);
  void* allocate(uint64_t bytes, const std::string& name);
  void release(void* region);
  void* address(void* region);
  // Asynchronous: these return a work.
  CallOutcome try_read(void* region, uint64_t offset, void* buffer, uint64_t bytes, void** work);
  CallOutcome try_write(void* region, uint64_t offset, const void* buffer, uint64_t bytes, void** work);
  void* start_read(void* region, uint64_t offset, const GuardedBytes& into);
  void* start_write(void* region, uint64_t offset, const GuardedBytes& from);
  CallOutcome try_wait(void* work);
  void wait(void* work);
  // These also wait for the work to end.
  GuardedBytes read(void* region, uint64_t offset, uint64_t count);
  void write(void* region, uint64_t offset, const GuardedBytes& from);
  void destroy();  // destroys the plugin object early; later calls do nothing

 private:
  const plugin::Plugin& plugin_;
  const gannet_offload_api& api_;
  const gannet::Host host_;
  plugin::ParamSet params_;
  void* self_ = nullptr;
  uint64_t alignment_ = 1;
};

// All files in and below the folders that the params name.
std::vector<std::string> files_of(const Subject& subject);

}  // namespace gannet::kit
