// Numbers, texts and marks of the host among the ranks of a group, over a Comm that serves host memory: never the device's, whose
// memory they are not in and whose order they would share.
//
//   group.all_reduce(totals, 2);                                 // fp64, in place
//   for (const std::string& text : group.gather_texts(mine)) ... // by rank
//
// A group of its own: its calls are in the same order on all ranks, whatever the group of the gradients does meanwhile. One
// thread at a time uses it; a thread that runs beside the engine's (a save in the background) has a HostGroup of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interfaces/comm.h"

namespace gannet {

class HostGroup {
 public:
  // Called by every member, as CommGroup. The Comm must serve host memory.
  HostGroup(Comm& comm, const std::vector<uint32_t>& ranks, const std::string& name);

  uint32_t rank() const { return group_.rank(); }
  uint32_t size() const { return group_.size(); }
  const std::vector<uint32_t>& ranks() const { return group_.ranks(); }
  const std::string& name() const { return name_; }
  Comm& comm() { return group_.comm(); }

  // Blocking; nothing is sent in a group of one.
  void all_reduce(double* values, uint64_t count, gannet_reduce_op op = GANNET_SUM);
  void broadcast(void* data, uint64_t bytes, uint32_t root);
  void all_gather(const void* mine, void* all, uint64_t bytes);  // all: [size] parts of `bytes`, by rank
  std::vector<std::string> gather_texts(const std::string& mine);
  void barrier();

  // The same, in flight: mine and all stay until the work is over.
  Work start_all_gather(const void* mine, void* all, uint64_t bytes);

 private:
  // The group's name as the caller gave it; its CommGroup is called "<name>/host".
  std::string name_;
  CommGroup group_;
};

}  // namespace gannet
