// Checks of many collectives in flight: messages between two ranks, batches, several groups.
#include <algorithm>
#include <numeric>

#include "base/format.h"
#include "kit/comm/checks.h"
#include "kit/comm/ranks_of.h"
#include "kit/comm/trial.h"

namespace gannet::kit {
namespace {

constexpr uint64_t kSizes[] = {1, 100'000, 3, 0, 300'001, 7};  // near the transports' buffer sizes

// A rank's collectives in flight.
struct CollectivesInFlight {
  std::vector<CollectiveTrial> trials;
  std::vector<PeerWork> works;
  void start(PeerGroup& group, const RequestedCollective& wanted) {
    trials.emplace_back(group.rank(), group.size(), wanted);
    works.push_back(group.start(trials.back().args(), trials.back().name()));
  }
  // Ends them in reverse order.
  void end() {
    for (size_t i = works.size(); i-- > 0;) works[i].must_end();
    for (const CollectiveTrial& trial : trials) trial.check();
  }
};

}  // namespace

void keep_messages_in_order(Subject& subject) {
  on_every_world(subject, 2, "messages between the first rank and the last", [](Peer& peer) {
    PeerGroup world = peer.world();
    const uint32_t last = world.size() - 1;
    for (const uint32_t from : {0u, last}) {
      const uint32_t to = last - from;
      CollectivesInFlight flight;
      for (uint64_t m = 0; m < std::size(kSizes); ++m) {
        if (world.rank() == from)
          flight.start(world, {.op = GANNET_SEND, .dtype = GANNET_INT32, .count = kSizes[m], .peer = to, .seed = m});
        if (world.rank() == to)
          flight.start(world, {.op = GANNET_RECV, .dtype = GANNET_INT32, .count = kSizes[m], .peer = from, .seed = m});
        if (m == 2) run(world, {.dtype = GANNET_FLOAT32, .count = 5});  // between the messages
      }
      flight.end();
    }
    world.barrier();
  });
}

void progress_in_a_batch(Subject& subject) {
  on_every_world(subject, 1, "batches", [](Peer& peer) {
    PeerGroup world = peer.world();
    for (uint64_t round = 0; round < 3; ++round) {
      std::vector<CollectiveTrial> trials;
      const auto add = [&](const RequestedCollective& wanted) { trials.emplace_back(world.rank(), world.size(), wanted); };
      for (uint64_t i = 0; i < 20 + round; ++i)
        add({.op = GANNET_ALL_GATHER, .dtype = GANNET_INT64, .count = i % 5, .seed = i + round});
      for (uint32_t other = 0; other < world.size(); ++other) {
        if (other == world.rank()) continue;
        add({.op = GANNET_SEND, .count = 1'000'003, .peer = other, .seed = round});
        add({.op = GANNET_RECV, .count = 1'000'003, .peer = other, .seed = round});
        add({.op = GANNET_SEND, .dtype = GANNET_UINT8, .count = 3, .peer = other, .seed = round + 4});
        add({.op = GANNET_RECV, .dtype = GANNET_UINT8, .count = 3, .peer = other, .seed = round + 4});
      }
      add({.op = GANNET_ALL_REDUCE, .count = 1001, .seed = round});
      add({.op = GANNET_BROADCAST, .dtype = GANNET_INT16, .count = 77, .peer = world.size() - 1});
      add({.op = GANNET_REDUCE_SCATTER, .dtype = GANNET_FLOAT64, .count = 19, .seed = round});
      add({.op = GANNET_ALL_TO_ALL, .count = 11, .seed = round});
      add({.op = GANNET_BARRIER});
      std::vector<gannet_collective_args> batch;
      for (const CollectiveTrial& trial : trials) batch.push_back(trial.args());
      PeerWork work = world.start_many(batch, formatted("a batch of {} mixed members", batch.size()));
      work.must_end();
      for (const CollectiveTrial& trial : trials) trial.check();
    }
  });
}

void keep_groups_apart(Subject& subject) {
  on_every_world(subject, 1, "groups", [](Peer& peer) {
    PeerGroup world = peer.world();
    const uint32_t rank = peer.rank(), size = peer.size();
    std::vector<uint32_t> backwards(size);
    std::iota(backwards.rbegin(), backwards.rend(), 0);
    PeerGroup reversed = peer.group(backwards, "backwards");
    std::vector<uint32_t> half;  // the even ranks from the largest down, or the odd ones
    for (uint32_t r = size; r-- > 0;)
      if (r % 2 == rank % 2) half.push_back(r);
    PeerGroup mine = peer.group(half, rank % 2 ? "odd" : "even");
    PeerGroup alone = peer.group({rank}, formatted("alone {}", rank));
    for (uint64_t round = 0; round < 3; ++round) {
      CollectivesInFlight flight;
      // Several groups in flight, with messages of different sizes.
      for (PeerGroup* group : {&world, &reversed, &mine, &alone}) {
        const uint64_t seed = round * 4 + group->size();
        flight.start(*group, {.count = 50'001, .seed = seed});
        flight.start(*group, {.op = GANNET_ALL_GATHER, .dtype = GANNET_INT32, .count = 333, .seed = seed});
        flight.start(*group, {.op = GANNET_BROADCAST, .count = 5, .peer = group->size() - 1, .seed = seed});
        flight.start(*group, {.op = GANNET_REDUCE_SCATTER, .count = 1001, .seed = seed});
      }
      for (PeerGroup* group : {&world, &reversed, &mine}) {
        const CollectiveTrial members[] = {
            {group->rank(), group->size(), {.count = 11, .seed = round}},
            {group->rank(), group->size(), {.op = GANNET_BROADCAST, .count = 9, .peer = 0, .seed = round}}};
        group->start_many({members[0].args(), members[1].args()}, "a batch of one group").must_end();
        for (const CollectiveTrial& member : members) member.check();
      }
      // Many collectives of one group.
      for (uint64_t i = 0; i < 10; ++i) flight.start(round % 2 ? world : reversed, {.count = 1 + 1000 * i, .seed = i});
      flight.end();
    }
    world.barrier();
  });
}

}  // namespace gannet::kit
