// Exchanges numbers and strings in host memory among a group's ranks, over a Comm for host memory.
// It never uses the device's Comm: the data is not in device memory, and its collectives would be
// ordered with the device's collectives.
//
//   group.all_reduce(totals, 2);                                 // fp64, in place
//   for (const std::string& text : group.gather_texts(mine)) ... // by rank
//
// It is a separate group: its calls must be made in the same order on all ranks, but independently
// of the gradients' group. Only one thread may use it at a time; a background thread (an
// asynchronous save) has its own HostGroup.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interfaces/comm.h"

namespace gannet {

class HostGroup {
 public:
  // Every member must construct the group, as with CommGroup. Throws Error(kConfig) unless the Comm serves host memory.
  HostGroup(Comm& comm, const std::vector<uint32_t>& ranks, const std::string& name);

  uint32_t rank() const { return group_.rank(); }
  uint32_t size() const { return group_.size(); }
  const std::vector<uint32_t>& ranks() const { return group_.ranks(); }
  const std::string& name() const { return name_; }
  Comm& comm() { return group_.comm(); }

  // These calls block. In a group of one rank, nothing is sent.
  void all_reduce(double* values, uint64_t count, gannet_reduce_op op = GANNET_SUM);
  void broadcast(void* data, uint64_t bytes, uint32_t root);
  void all_gather(const void* mine, void* all, uint64_t bytes);  // all: [size] the ranks' data, `bytes` bytes each
  std::vector<std::string> gather_texts(const std::string& mine);
  void barrier();

  // Starts a batch of byte messages between the group's ranks. The buffers must stay valid until
  // the work has completed. Messages from one rank to another arrive in the order in which they
  // were sent.
  struct SentBytes {
    uint32_t to;
    const void* data;
    uint64_t bytes;
  };
  struct ReceivedBytes {
    uint32_t from;
    void* data;
    uint64_t bytes;
  };
  Work start_exchange(const std::vector<SentBytes>& sent, const std::vector<ReceivedBytes>& received);

  // An asynchronous all_gather: `mine` and `all` must stay valid until the work has completed.
  Work start_all_gather(const void* mine, void* all, uint64_t bytes);

 private:
  // The group's name as given by the caller; its CommGroup is called "<name>/host".
  std::string name_;
  CommGroup group_;
};

}  // namespace gannet
