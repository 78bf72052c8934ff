#include "wire.h"

namespace gannet_gloo {
namespace {

// Returns the number of children in the binomial tree over the ranks, counted from the root. In
// round i the ranks below 2^i have the data, and each sends it to the rank 2^i above it, if there
// is one.
uint64_t children_in_broadcast(uint32_t rank, uint32_t size, uint32_t root) {
  const uint64_t from_root = (uint64_t{rank} + size - root) % size;
  uint64_t children = 0;
  for (uint64_t reach = 1; reach < size; reach *= 2)
    if (from_root < reach && from_root + reach < size) ++children;
  return children;
}

}  // namespace

Traffic traffic(const gannet::sdk::Collective& c) {
  const uint64_t element = c.element_bytes(), payload = c.bytes(), others = c.size - 1;
  switch (c.op) {
    case GANNET_ALL_REDUCE: {
      const uint64_t bytes = 2 * (c.sums_in_float() ? 2 * payload : payload) * others / c.size;
      return {bytes, bytes};
    }
    case GANNET_REDUCE_SCATTER:
      return {(c.send_offset(c.size) - c.send_count(c.rank)) * element, payload * others};
    case GANNET_ALL_GATHER:
      return {payload * others, (c.recv_offset(c.size) - c.recv_count(c.rank)) * element};
    case GANNET_ALL_TO_ALL:
      return {(c.send_offset(c.size) - c.send_count(c.rank)) * element, (c.recv_offset(c.size) - c.recv_count(c.rank)) * element};
    case GANNET_BROADCAST:
      return {payload * children_in_broadcast(c.rank, c.size, c.peer), c.rank == c.peer ? 0 : payload};
    case GANNET_SEND:
      return {payload, 0};
    case GANNET_RECV:
      return {0, payload};
    default:
      return {};
  }
}

}  // namespace gannet_gloo
