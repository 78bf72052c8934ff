// The ranks' key-value store of a check: in memory that all processes forked from here share.
//
//   SharedStore store(std::chrono::seconds(10));
//   rendezvous.store = store.table();          // in every rank, behind the fork
#pragma once

#include <gannet/abi.h>

#include <chrono>
#include <memory>

namespace gannet::kit {

class SharedStore {
 public:
  // `timeout`: of get.
  explicit SharedStore(std::chrono::milliseconds timeout);
  ~SharedStore();
  SharedStore(const SharedStore&) = delete;
  const gannet_store* table() const { return &table_; }

 private:
  struct Memory;
  friend struct Calls;
  Memory* memory_;
  std::chrono::milliseconds timeout_;
  gannet_store table_{};
};

}  // namespace gannet::kit
