// Messages between processes on one host, through shared memory with one byte ring for each
// ordered pair of ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <gannet/sdk_comm.hpp>
#include <gannet/sdk_store.hpp>
#include <string>
#include <vector>

namespace gannet::accelerators {

class Mailboxes {
 public:
  // Called by every rank of the group. The ranks find the shared memory through the store, under
  // `name`.
  Mailboxes(const sdk::Store& store, const std::string& name, uint32_t rank, uint32_t size);
  ~Mailboxes();
  Mailboxes(const Mailboxes&) = delete;

  struct OutgoingMessage {
    uint32_t to;
    const void* from;
    uint64_t bytes;
  };
  struct IncomingMessage {
    uint32_t from;
    void* to;
    uint64_t bytes;
  };
  // Exchanges all messages concurrently; messages between the same two ranks keep their order.
  // Throws Failure(GANNET_PEER_LOST) if a rank has ended or aborted, and
  // Failure(GANNET_INVALID_ARGUMENT) if two ranks disagree on the length of a message.
  void exchange(const std::vector<OutgoingMessage>& outs, const std::vector<IncomingMessage>& ins);
  // Ends this rank's exchanges and those of ranks waiting for it. Thread-safe.
  void abort();

 private:
  struct Ring;  // the byte ring of one pair of ranks
  Ring& ring(uint32_t from, uint32_t to) const;
  std::atomic<int32_t>& process_of(uint32_t rank) const;
  void require_alive(uint32_t peer) const;

  uint32_t rank_, size_;
  uint64_t bytes_;
  char* memory_ = nullptr;  // null for a group of one rank
};

}  // namespace gannet::accelerators
