// The host table that plugins are given, and who serves its collectives.
#pragma once

#include <gannet/abi.h>

#include <cstdint>

namespace gannet {

// What stands behind the table's collectives: set by the engine around an optimizer's update, null elsewhere.
class HostCollectives {
 public:
  virtual ~HostCollectives() = default;
  virtual uint32_t rank() const = 0;
  virtual uint32_t world_size() const = 0;
  virtual void all_reduce(void* buffer, uint64_t count, gannet_dtype dtype, gannet_reduce_op op) = 0;
  virtual void all_gather(const void* send, void* receive, uint64_t count, gannet_dtype dtype) = 0;
  virtual void all_to_all(const void* send, void* receive, uint64_t count_per_rank, gannet_dtype dtype) = 0;
};

// One host table: an engine owns one, so that several engines in a process have their own collectives.
// The table's address is stable and outlives every object created with it.
class Host {
 public:
  Host();
  Host(const Host&) = delete;
  const gannet_host* table() const { return &table_; }
  void set_collectives(HostCollectives* collectives) { collectives_ = collectives; }
  HostCollectives* collectives() const { return collectives_; }

 private:
  gannet_host table_{};
  // Not owned; null outside of an update.
  HostCollectives* collectives_ = nullptr;
};

}  // namespace gannet
