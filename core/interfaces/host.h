// The host table that plugins are given, and who serves its collectives.
#pragma once

#include <gannet/abi.h>

#include <cstdint>

namespace gannet {

// What stands behind the table's collectives while they are open.
class HostCollectives {
 public:
  virtual ~HostCollectives() = default;
  // Whose struct_size and group are checked. Throws Error.
  virtual void run(const gannet_host_collective& args) = 0;
};

// One host table: an engine owns one, so that several engines in a process have their own collectives.
// The table's address is stable and outlives every object created with it.
class Host {
 public:
  Host();
  Host(const Host&) = delete;
  const gannet_host* table() const { return &table_; }
  // Of GANNET_GROUP_DATA; a process alone until it is said.
  void set_ranks(uint32_t rank, uint32_t size) {
    rank_ = rank;
    size_ = size;
  }
  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }
  // While it lives plugins may use the collectives.
  class Open {
   public:
    Open(Host& host, HostCollectives& collectives) : host_(host) { host_.collectives_ = &collectives; }
    ~Open() { host_.collectives_ = nullptr; }
    Open(const Open&) = delete;

   private:
    Host& host_;
  };
  HostCollectives* collectives() const { return collectives_; }

 private:
  gannet_host table_{};
  HostCollectives* collectives_ = nullptr;  // not owned; null where they are not open
  uint32_t rank_ = 0, size_ = 1;
};

}  // namespace gannet
