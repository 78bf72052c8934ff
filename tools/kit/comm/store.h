// A key-value store for a check's ranks, in memory shared by all processes forked later, or, for
// ranks of a launcher, in a file that all of them map.
//
//   SharedStore store(std::chrono::seconds(10));
//   rendezvous.store = store.table();          // in every rank, after the fork
#pragma once

#include <gannet/abi.h>

#include <chrono>
#include <memory>
#include <string>

namespace gannet::kit {

class SharedStore {
 public:
  // `timeout`: how long `get` waits.
  explicit SharedStore(std::chrono::milliseconds timeout, const std::string& file = "");
  ~SharedStore();
  SharedStore(const SharedStore&) = delete;
  const gannet_store* table() const { return &table_; }

 private:
  struct Memory;
  friend struct StoreFunctions;
  Memory* memory_;
  std::chrono::milliseconds timeout_;
  gannet_store table_{};
};

}  // namespace gannet::kit
