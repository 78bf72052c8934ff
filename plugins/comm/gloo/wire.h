// The payload bytes that a rank sends and receives through Gloo's transport for one collective,
// from a formula for its algorithm. There are N ranks, and P is the payload bytes of one rank
// (count * element size; twice that for a 16-bit all_reduce in float).
//
//   all_reduce       ring: N-1 steps of reduce-scatter and N-1 of all-gather, a chunk of P/N each     2 P (N-1) / N
//   broadcast        binomial tree: P to each child, P from the parent                                children * P, or P
//   all_gather       ring                                                                             P (N-1)
//   reduce_scatter   ring, our own (ring.h)                                                           P (N-1)
//   all_to_all       one part to each other rank; its own part is a local copy                        P (N-1)
//   barrier          no payload                                                                       0
//   send, recv       P one way
//
// Parts of different sizes are sent directly to their ranks; P (N-1) is then the sum over the parts
// that are not local. Gloo's chunks differ by a few elements if N does not divide the count;
// the formula rounds P (N-1) / N down.
#pragma once

#include <gannet/abi.h>

#include <cstdint>
#include <gannet/sdk_comm.hpp>

namespace gannet_gloo {

struct Traffic {
  uint64_t sent = 0;
  uint64_t received = 0;
};

Traffic traffic(const gannet::sdk::Collective& collective);

}  // namespace gannet_gloo
