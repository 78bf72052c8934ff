// Checks of the other functions of a Comm's table: counters, its own memory, refusals, and what it
// leaves behind.
#include <sys/mman.h>

#include <cstring>
#include <new>

#include "base/format.h"
#include "kit/comm/checks.h"
#include "kit/comm/ranks_of.h"
#include "kit/comm/trial.h"
#include "kit/growth.h"
#include "kit/numbers.h"

namespace gannet::kit {
namespace {

struct TrafficTotal {  // over all ranks
  uint64_t sent, received;
};

void add(uint64_t& total, uint64_t bytes) { __atomic_fetch_add(&total, bytes, __ATOMIC_SEQ_CST); }

}  // namespace

void count_honestly(Subject& subject) {
  void* memory = ::mmap(nullptr, sizeof(TrafficTotal), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Error(ErrorCode::kOutOfMemory, "no memory to share between the ranks of a check");
  auto& total = *new (memory) TrafficTotal{};
  on_every_world(subject, 1, "counters", [&](Peer& peer) {
    PeerGroup world = peer.world();
    const auto require = [&](bool holds, const std::string& found, const std::string& expected) {
      if (!holds) throw CheckFailure(found, text_of(place()), expected);
    };
    gannet_comm_counters before = peer.counters();
    const auto step = [&](uint64_t calls, const std::string& what) {
      const auto now = peer.counters();
      set_detail(what);
      require(now.calls - before.calls == calls, formatted("{} calls are counted", now.calls - before.calls),
              formatted("{} collective(s) were started", calls));
      require(now.bytes_sent >= before.bytes_sent && now.bytes_received >= before.bytes_received, "the bytes have become fewer",
              "counters only grow");
      require(world.size() > 1 || (now.bytes_sent == 0 && now.bytes_received == 0),
              formatted("{} bytes sent and {} received by a world of one rank", now.bytes_sent, now.bytes_received),
              "nothing leaves a rank that is alone");
      const gannet_comm_counters moved{0, 0, calls, now.bytes_sent - before.bytes_sent,
                                       now.bytes_received - before.bytes_received};
      before = now;
      return moved;
    };
    run(world, {.count = 1200});
    step(1, "an all_reduce");
    run(world, {.op = GANNET_ALL_GATHER, .count = 1200});
    const auto gathered = step(1, "an all_gather of 4800 bytes of each rank");
    require(gathered.bytes_received >= 4800 * (world.size() - 1), formatted("{} bytes received", gathered.bytes_received),
            "the parts of the other ranks are received");
    std::vector<CollectiveTrial> trials;
    if (world.size() > 1) {
      const uint32_t next = (world.rank() + 1) % world.size(), previous = (world.rank() + world.size() - 1) % world.size();
      trials.emplace_back(world.rank(), world.size(), RequestedCollective{.op = GANNET_SEND, .count = 1000, .peer = next});
      trials.emplace_back(world.rank(), world.size(), RequestedCollective{.op = GANNET_RECV, .count = 1000, .peer = previous});
      world.start_many({trials[0].args(), trials[1].args()}, "a send and a recv of 4000 bytes").must_end();
      const auto moved = step(2, "a send and a recv of 4000 bytes");
      require(moved.bytes_sent >= 4000 && moved.bytes_received >= 4000,
              formatted("{} bytes sent and {} received", moved.bytes_sent, moved.bytes_received), "4000 each, or more");
    }
    world.barrier();
    const auto now = peer.counters();
    add(total.sent, now.bytes_sent);
    add(total.received, now.bytes_received);
  });
  if (total.sent != total.received)
    throw CheckFailure(formatted("all ranks together sent {} bytes and received {}", total.sent, total.received),
                       "worlds of 1 to 4 ranks");
  ::munmap(memory, sizeof(TrafficTotal));
}

void use_memory_of_the_plugin(Subject& subject) {
  const auto& api = *interfaces::api_of<gannet_comm_api>(*subject.plugin);
  const int there = !!api.allocate + !!api.deallocate + !!api.register_buffer + !!api.unregister_buffer;
  if (there != 0 && there != 4)
    throw CheckFailure(formatted("{} of allocate, deallocate, register_buffer and unregister_buffer are there", there),
                       "the table", "all four, or none and all null");
  if (there == 0) throw SkippedCheck("it has no memory of its own");
  on_every_world(subject, 1, "memory of the plugin's", [](Peer& peer) {
    const auto& api = peer.api();
    PeerGroup world = peer.world();
    constexpr uint64_t kCount = 10'007;
    std::vector<Buffer> registered;  // each at an address of its own
    registered.reserve(3);
    for (int round = 0; round < 3; ++round) {
      void* memory = nullptr;
      require_ok("allocate", call("allocate", peer.plugin(), api.allocate, peer.self(), world.handle(),
                                  uint64_t{kCount * sizeof(float)}, &memory));
      if (!memory) throw CheckFailure("allocate returned GANNET_OK and no memory", text_of(place()));
      const Buffer& own = registered.emplace_back(kCount * sizeof(float), "a registered buffer");
      require_ok("register_buffer", call("register_buffer", peer.plugin(), api.register_buffer, peer.self(), world.handle(),
                                         own.data(), uint64_t{own.bytes()}));
      for (void* buffer : {memory, own.data()}) {
        auto* values = static_cast<float*>(buffer);
        for (uint64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 7 + world.rank());
        gannet_collective_args args{};
        args.struct_size = sizeof(args);
        args.op = GANNET_ALL_REDUCE;
        args.dtype = GANNET_FLOAT32;
        args.reduce_op = GANNET_SUM;
        args.send = args.recv = buffer;
        args.count = kCount;
        args.factor = 1;
        world.start(args, buffer == memory ? "an all_reduce in allocated memory" : "an all_reduce in a registered buffer")
            .must_end();
        const uint32_t n = world.size();
        for (uint64_t i = 0; i < kCount; ++i)
          if (values[i] != static_cast<float>(n * (i % 7) + n * (n - 1) / 2))
            throw CheckFailure(formatted("element {} is {}, not {}", i, values[i], n * (i % 7) + n * (n - 1) / 2),
                               text_of(place()));
      }
      for (const bool again : {false, true}) {  // a buffer that is unregistered can be registered again
        if (again)
          require_ok("register_buffer", call("register_buffer", peer.plugin(), api.register_buffer, peer.self(), world.handle(),
                                             own.data(), uint64_t{own.bytes()}));
        require_ok("unregister_buffer",
                   call("unregister_buffer", peer.plugin(), api.unregister_buffer, peer.self(), world.handle(), own.data()));
      }
      const CallScope calling("deallocate", 0);
      api.deallocate(peer.self(), world.handle(), memory);
    }
  });
}

void refuse_wrong_arguments(Subject& subject) {
  on_every_world(subject, 1, "wrong arguments", [](Peer& peer) {
    PeerGroup world = peer.world();
    const auto refused = [&](const gannet_collective_args& args, const std::string& what) {
      PeerWork work;
      CallOutcome outcome = world.try_start(args, what, work);
      if (outcome.ok()) outcome = work.wait(peer.timeout_ms());
      require_explained("collective", outcome);
      if (outcome.ok()) throw CheckFailure(formatted("{} is accepted", what), text_of(place()));
      if (outcome.status != GANNET_INVALID_ARGUMENT && outcome.status != GANNET_UNSUPPORTED)
        throw CheckFailure(formatted("{} is answered with status {}: {}", what, outcome.status, outcome.message),
                           text_of(place()), "GANNET_INVALID_ARGUMENT or GANNET_UNSUPPORTED: it is the caller's mistake");
    };
    const auto args_of = [&](const RequestedCollective& wanted) { return CollectiveTrial(world.rank(), world.size(), wanted); };
    const CollectiveTrial sum = args_of({.count = 4}), cast = args_of({.op = GANNET_BROADCAST, .count = 4});
    const CollectiveTrial whole = args_of({.dtype = GANNET_INT32, .reduce_op = GANNET_SUM, .count = 4});
    const CollectiveTrial message = args_of({.op = GANNET_SEND, .count = 4});
    gannet_collective_args args = sum.args();
    args.op = 12;
    refused(args, "an unknown operation, 12");
    args = sum.args();
    args.dtype = 99;
    refused(args, "an unknown dtype, 99");
    args = sum.args();
    args.reduce_op = 9;
    refused(args, "an unknown reduce operation, 9");
    args = cast.args();
    args.peer = world.size();
    refused(args, "a broadcast from a rank that the group does not have");
    args = message.args();
    args.peer = world.rank();
    refused(args, "a message to itself");
    args.peer = world.size();
    refused(args, "a message to a rank that the group does not have");
    for (const gannet_reduce_op op : {GANNET_AVERAGE, GANNET_PREMULTIPLIED_SUM}) {
      args = whole.args();
      args.reduce_op = op;
      refused(args, op == GANNET_AVERAGE ? "an average of int32" : "a premultiplied sum of int32");
    }
    const auto no_group = [&](const std::vector<uint32_t>& ranks, const std::string& what) {
      void* handle = nullptr;
      const CallOutcome outcome = peer.try_group(ranks, "wrong", &handle);
      require_explained("group_create", outcome);
      if (outcome.ok()) throw CheckFailure(formatted("{} is accepted", what), text_of(place()));
    };
    no_group({peer.rank(), peer.size()}, "a group with a rank that the world does not have");
    no_group({peer.rank(), peer.rank()}, "a group that names a rank twice");
    run(world, {.count = 33});  // it still works
  });
}

namespace {

void use(PeerGroup& group) {
  run(group, {.count = 100});
  run(group, {.op = GANNET_ALL_GATHER, .count = 3, .uneven = true});
  const CollectiveTrial one(group.rank(), group.size(), {.count = 7}),
      two(group.rank(), group.size(), {.op = GANNET_BROADCAST, .count = 2});
  group.start_many({one.args(), two.args()}, "a batch").must_end();
  const Peer& peer = group.peer();
  if (!peer.api().allocate) return;
  void* memory[2] = {};
  for (void*& each : memory)
    require_ok("allocate",
               call("allocate", peer.plugin(), peer.api().allocate, peer.self(), group.handle(), uint64_t{1} << 20, &each));
  const CallScope calling("deallocate", 0);
  for (void* each : memory) peer.api().deallocate(peer.self(), group.handle(), each);
}

uint32_t two_ranks_or_one(const Subject& subject) {
  const auto sizes = sizes_of(subject);
  return sizes.size() > 1 ? sizes[1] : sizes[0];
}

}  // namespace

// Runs the same number of rounds on every rank, since a rank's collectives end only when the
// others' do.
void leave_nothing_of_collectives(Subject& subject) {
  on_ranks(subject, two_ranks_or_one(subject), "many collectives", [](Peer& peer) {
    PeerGroup world = peer.world();
    require_no_growth([&] { use(world); }, 200, "1600 rounds of collectives in one group", GrowthBlocks::kAll);
    world.barrier();
  });
}

void leave_nothing_of_groups(Subject& subject) {
  on_ranks(subject, two_ranks_or_one(subject), "groups made and destroyed", [](Peer& peer) {
    PeerGroup world = peer.world();
    int number = 0;
    std::vector<uint32_t> ranks;
    for (uint32_t r = 0; r < peer.size(); ++r) ranks.push_back(r);
    require_no_growth(
        [&] {
          PeerGroup group = peer.group(ranks, formatted("group {}", 1000 + ++number));
          use(group);
          group.barrier();
        },
        10, "80 groups made, used and destroyed", GrowthBlocks::kAll);
    world.barrier();
  });
}

}  // namespace gannet::kit
