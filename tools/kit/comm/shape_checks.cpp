// Checks on a Comm's entire API: that it leaves the process as it was, accepts the longer structs
// of a later minor version, and keeps its error messages within gannet_error's size.
#include <limits>

#include "kit/comm/checks.h"
#include "kit/comm/ranks_of.h"
#include "kit/comm/trial.h"
#include "kit/process_check.h"
#include "kit/relay.h"
#include "kit/relay_fault.h"

namespace gannet::kit {
namespace {

// Calls every function of the table that can be called without provoking an error.
void use_all(Peer& peer) {
  PeerGroup world = peer.world();
  for (const gannet_collective op :
       {GANNET_ALL_REDUCE, GANNET_BROADCAST, GANNET_ALL_GATHER, GANNET_REDUCE_SCATTER, GANNET_ALL_TO_ALL})
    for (const gannet_dtype dtype : {GANNET_FLOAT32, GANNET_BFLOAT16})
      for (const uint64_t count : {uint64_t{17}, uint64_t{4099}}) run(world, {.op = op, .dtype = dtype, .count = count});
  run(world, {.op = GANNET_ALL_GATHER, .count = 5, .uneven = true});
  world.barrier();
  std::vector<CollectiveTrial> trials;
  std::vector<gannet_collective_args> batch;
  trials.reserve(4);
  trials.emplace_back(world.rank(), world.size(), RequestedCollective{.count = 100});
  trials.emplace_back(world.rank(), world.size(), RequestedCollective{.op = GANNET_ALL_GATHER, .count = 33, .seed = 1});
  if (world.size() > 1) {
    const uint32_t next = (world.rank() + 1) % world.size(), previous = (world.rank() + world.size() - 1) % world.size();
    trials.emplace_back(world.rank(), world.size(), RequestedCollective{.op = GANNET_SEND, .count = 1000, .peer = next});
    trials.emplace_back(world.rank(), world.size(), RequestedCollective{.op = GANNET_RECV, .count = 1000, .peer = previous});
  }
  for (const CollectiveTrial& trial : trials) batch.push_back(trial.args());
  PeerWork work = world.start_many(batch, "a batch");
  work.is_over();
  require_ok("work_block", work.block(nullptr));
  work.must_end();
  for (const CollectiveTrial& trial : trials) trial.check();
  peer.counters();
  peer.api().sum_dtype(peer.self(), GANNET_BFLOAT16);
}

void use_in_worlds(const Subject& subject, const std::string& what) {
  for (const uint32_t size : sizes_of(subject))
    on_ranks(subject, size, what, [](Peer& peer) {
      use_all(peer);
      throw_kept_fault();
    });
}

}  // namespace

void use_comm(Subject& subject) {
  try {
    require_host_memory(subject);
  } catch (const SkippedCheck&) {
    return;  // only `create` can be watched here
  }
  use_in_worlds(subject, "every call");
}

void fail_comm(Subject& subject) {
  try {
    require_host_memory(subject);
  } catch (const SkippedCheck&) {
    return;
  }
  refuse_wrong_arguments(subject);
}

void take_longer_structs(Subject& subject) {
  const RelayScope scope({.appended_bytes = 64, .copies_arguments = true});
  use_in_worlds(subject, "structs of a later minor");
}

}  // namespace gannet::kit
