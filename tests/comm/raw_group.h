// Collectives on plain buffers of host memory, for tests: what DeviceComm does for tensors.
#pragma once

#include "interfaces/comm.h"

namespace gannet::test {

struct RawGroup {
  CommGroup& group;

  uint32_t rank() const { return group.rank(); }
  uint32_t size() const { return group.size(); }
  Work start(const gannet_collective_args& args) { return group.start(args, nullptr); }
  Work all_reduce(void* buffer, uint64_t count, gannet_dtype dtype, gannet_reduce_op op = GANNET_SUM) {
    return start(collective::all_reduce(buffer, count, dtype, op));
  }
  Work broadcast(void* buffer, uint64_t count, gannet_dtype dtype, uint32_t root = 0) {
    return start(collective::broadcast(buffer, count, dtype, root));
  }
  Work all_gather(const void* send, void* receive, uint64_t count, gannet_dtype dtype) {
    return start(collective::all_gather(send, receive, count, dtype));
  }
  Work reduce_scatter(const void* send, void* receive, uint64_t count, gannet_dtype dtype) {
    return start(collective::reduce_scatter(send, receive, count, dtype));
  }
  Work all_to_all(const void* send, void* receive, uint64_t count, gannet_dtype dtype) {
    return start(collective::all_to_all(send, receive, count, dtype));
  }
  void barrier() { start(collective::barrier()).wait(); }
};

}  // namespace gannet::test
