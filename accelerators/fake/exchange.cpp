#include "exchange.h"

#include <cstring>
#include <memory>

namespace gannet::accelerators {

using sdk::Collective;

namespace {

// This rank's scaled elements, and buffers for the parts received from other ranks.
struct ReductionBuffers {
  std::vector<char> scaled, arrived;
};

void add_reduction(const Collective& c, ExchangePlan& plan) {
  const bool scatters = c.op == GANNET_REDUCE_SCATTER;
  auto parts = std::make_shared<ReductionBuffers>();
  Collective mine = c;
  if (c.first_factor() != 1.0) {
    const uint64_t all = scatters ? c.send_offset(c.size) : c.count;
    const char* send = static_cast<const char*>(c.send);
    parts->scaled.assign(send, send + all * c.element_bytes());
    sdk::scale(parts->scaled.data(), all, c.dtype, c.first_factor());
    mine.send = parts->scaled.data();
  }
  const auto part_for = [&](uint32_t rank) { return scatters ? mine.send_part(rank) : static_cast<const char*>(mine.send); };
  parts->arrived.resize(c.bytes() * c.size);
  std::vector<const void*> of_ranks;
  for (uint32_t other = 0; other < c.size; ++other) {
    char* place = parts->arrived.data() + other * c.bytes();
    of_ranks.push_back(other == c.rank ? part_for(c.rank) : place);
    if (other == c.rank) continue;
    plan.outs.push_back({other, part_for(other), (scatters ? c.send_count(other) : c.count) * c.element_bytes()});
    plan.ins.push_back({other, place, c.bytes()});
  }
  plan.then = [c, parts, of_ranks, before = std::move(plan.then)] {
    before();
    sdk::reduce_parts(c.recv, of_ranks, c.count, c.dtype, c.reduce_op, c.sums_in_float(), c.final_factor());
  };
}

}  // namespace

void add(const Collective& c, ExchangePlan& plan) {
  static const char kNothing = 0;
  static thread_local char nowhere[1];
  const uint64_t size = c.element_bytes();
  if (c.reduces()) return add_reduction(c, plan);
  if (c.op == GANNET_SEND) return plan.outs.push_back({c.peer, c.send, c.bytes()});
  if (c.op == GANNET_RECV) return plan.ins.push_back({c.peer, c.recv, c.bytes()});
  if (c.op == GANNET_BROADCAST && c.rank != c.peer) return plan.ins.push_back({c.peer, c.recv, c.bytes()});
  for (uint32_t other = 0; other < c.size; ++other) {
    if (other == c.rank) continue;
    switch (c.op) {
      case GANNET_BROADCAST:
        plan.outs.push_back({other, c.recv, c.bytes()});
        break;
      case GANNET_ALL_GATHER:
        plan.outs.push_back({other, c.send, c.bytes()});
        plan.ins.push_back({other, c.recv_part(other), c.recv_count(other) * size});
        break;
      case GANNET_ALL_TO_ALL:
        plan.outs.push_back({other, c.send_part(other), c.send_count(other) * size});
        plan.ins.push_back({other, c.recv_part(other), c.recv_count(other) * size});
        break;
      default:  // for a barrier
        plan.outs.push_back({other, &kNothing, 1});
        plan.ins.push_back({other, nowhere, 1});
    }
  }
  const void* own = c.op == GANNET_ALL_GATHER ? c.send : c.op == GANNET_ALL_TO_ALL ? c.send_part(c.rank) : nullptr;
  if (own && c.recv_count(c.rank) > 0 && own != c.recv_part(c.rank))
    std::memmove(c.recv_part(c.rank), own, c.recv_count(c.rank) * size);
}

}  // namespace gannet::accelerators
