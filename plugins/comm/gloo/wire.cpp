#include "wire.h"

namespace gannet_gloo {
namespace {

// Children in the binomial tree over ranks counted from the root: in round i the ranks below 2^i have the data, and each sends
// it to the rank 2^i above itself, where there is one.
uint64_t children_in_broadcast(uint32_t rank, uint32_t size, uint32_t root) {
  const uint64_t from_root = (uint64_t{rank} + size - root) % size;
  uint64_t children = 0;
  for (uint64_t reach = 1; reach < size; reach *= 2)
    if (from_root < reach && from_root + reach < size) ++children;
  return children;
}

}  // namespace

Traffic traffic(gannet_collective op, uint64_t payload_bytes, uint32_t rank, uint32_t size, uint32_t root) {
  const uint64_t others = size - 1;
  switch (op) {
    case GANNET_ALL_REDUCE: {
      const uint64_t bytes = 2 * payload_bytes * others / size;
      return {bytes, bytes};
    }
    case GANNET_REDUCE_SCATTER:
    case GANNET_ALL_GATHER:
    case GANNET_ALL_TO_ALL:
      return {payload_bytes * others, payload_bytes * others};
    case GANNET_BROADCAST:
      return {payload_bytes * children_in_broadcast(rank, size, root), rank == root ? 0 : payload_bytes};
    case GANNET_BARRIER:
      break;
  }
  return {};
}

}  // namespace gannet_gloo
