// The host table passed to plugins, and the implementation of its collectives.
#pragma once

#include <gannet/abi.h>

#include <cstdint>

namespace gannet {

// Implements the table's collectives while they are open.
class HostCollectives {
 public:
  virtual ~HostCollectives() = default;
  // `args` has its struct_size and group checked. Throws Error.
  virtual void run(const gannet_host_collective& args) = 0;
};

// A host table. Each engine owns one, so that several engines in a process have their own
// collectives.
// The table's address is stable and outlives every object created with it.
class Host {
 public:
  Host();
  Host(const Host&) = delete;
  const gannet_host* table() const { return &table_; }
  // Ranks of GANNET_GROUP_DATA; until set, a single process.
  void set_ranks(uint32_t rank, uint32_t size) {
    rank_ = rank;
    size_ = size;
  }
  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }
  // Plugins may use the collectives while this object lives.
  class OpenCollectives {
   public:
    OpenCollectives(Host& host, HostCollectives& collectives) : host_(host) { host_.collectives_ = &collectives; }
    ~OpenCollectives() { host_.collectives_ = nullptr; }
    OpenCollectives(const OpenCollectives&) = delete;

   private:
    Host& host_;
  };
  HostCollectives* collectives() const { return collectives_; }

 private:
  gannet_host table_{};
  HostCollectives* collectives_ = nullptr;  // not owned; null while closed
  uint32_t rank_ = 0, size_ = 1;
};

}  // namespace gannet
