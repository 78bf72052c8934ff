// Messages between processes of one host, through memory that they share: a ring of bytes for each ordered pair of ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <gannet/sdk_comm.hpp>
#include <string>
#include <vector>

namespace gannet::accelerators {

class Mailboxes {
 public:
  // Called by every rank of the group; the ranks find one another's memory by the store, under `name`.
  Mailboxes(const gannet_store* store, const std::string& name, uint32_t rank, uint32_t size);
  ~Mailboxes();
  Mailboxes(const Mailboxes&) = delete;

  struct Out {
    uint32_t to;
    const void* from;
    uint64_t bytes;
  };
  struct In {
    uint32_t from;
    void* to;
    uint64_t bytes;
  };
  // All of them together; those of one pair in their order. Throws Failure(GANNET_PEER_LOST) when a rank has ended or
  // aborted, Failure(GANNET_INVALID_ARGUMENT) when two ranks mean messages of different lengths.
  void exchange(const std::vector<Out>& outs, const std::vector<In>& ins);
  // Ends exchanges of this rank and of those that wait for it. From any thread.
  void abort();

 private:
  struct Ring;  // one pair's
  Ring& ring(uint32_t from, uint32_t to) const;
  std::atomic<int32_t>& process_of(uint32_t rank) const;
  void require_alive(uint32_t peer) const;

  uint32_t rank_, size_;
  uint64_t bytes_;
  char* memory_ = nullptr;  // null: a group of one
};

}  // namespace gannet::accelerators
