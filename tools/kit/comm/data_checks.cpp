// Checks every collective, dtype and reduction against the plain loop of trial.cpp, with counts
// around SIMD lanes and transport buffers.
#include <array>
#include <cstring>

#include "base/format.h"
#include "kit/comm/checks.h"
#include "kit/comm/ranks_of.h"
#include "kit/comm/trial.h"
#include "kit/numbers.h"

namespace gannet::kit {
namespace {

constexpr uint64_t kLarge = 300'001;  // more than any socket's buffer
constexpr std::array kDtypes = {GANNET_FLOAT32, GANNET_FLOAT64, GANNET_FLOAT16, GANNET_BFLOAT16, GANNET_INT8,
                                GANNET_UINT8,   GANNET_INT16,   GANNET_INT32,   GANNET_INT64,    GANNET_BOOL};

// fp32 sums get the most counts, other fp32 reductions fewer, and the other types two odd ones.
std::vector<uint64_t> counts_of(const RequestedCollective& wanted) {
  if (wanted.dtype != GANNET_FLOAT32) return {1, 129};
  if (wanted.reduce_op != GANNET_SUM) return {0, 1, 17, 4099};
  return {0, 1, 3, 17, 1000, 4099, kLarge};
}

[[noreturn]] void fail_unserved(const RequestedCollective& wanted, PeerGroup& group) {
  throw CheckFailure(formatted("it does not serve a {} of fp32", CollectiveTrial(group.rank(), group.size(), wanted).name()),
                     text_of(place()), "every collective is served in fp32, which no training does without");
}

// fp32 must be supported; any other dtype must be supported for all counts or for none.
void run_all(PeerGroup& group, RequestedCollective wanted) {
  bool is_served = true;
  const auto counts = counts_of(wanted);
  for (const uint64_t count : counts) {
    wanted.count = count;
    const bool runs = run(group, wanted);
    if (!runs && wanted.dtype == GANNET_FLOAT32) fail_unserved(wanted, group);
    // Only fp32 runs with count 0: a collective that moves nothing may end before the dtype is checked.
    if (count == counts[0])
      is_served = runs;
    else if (runs != is_served)
      throw CheckFailure("it serves some counts, and not others", text_of(place()), "GANNET_UNSUPPORTED is about the dtype");
  }
}

}  // namespace

void serve_worlds(Subject& subject) { sizes_of(subject); }

void move_data(Subject& subject) {
  on_every_world(subject, 1, "moves", [](Peer& peer) {
    PeerGroup world = peer.world();
    for (const gannet_dtype dtype : kDtypes) {
      for (uint32_t root = 0; root < world.size(); ++root)
        run_all(world, {.op = GANNET_BROADCAST, .dtype = dtype, .peer = root, .seed = root});
      for (const bool in_place : {false, true})
        run_all(world, {.op = GANNET_ALL_GATHER, .dtype = dtype, .in_place = in_place, .seed = 1});
      run_all(world, {.op = GANNET_ALL_TO_ALL, .dtype = dtype, .seed = 2});
    }
    world.barrier();
  });
}

void reduce_data(Subject& subject) {
  on_every_world(subject, 1, "reduces", [](Peer& peer) {
    PeerGroup world = peer.world();
    for (const gannet_collective op : {GANNET_ALL_REDUCE, GANNET_REDUCE_SCATTER})
      for (const gannet_dtype dtype : kDtypes)
        for (const auto reduce_op : {GANNET_SUM, GANNET_MAX, GANNET_MIN, GANNET_AVERAGE, GANNET_PREMULTIPLIED_SUM})
          for (const bool in_place : {false, true}) {
            if (reduce_op >= GANNET_AVERAGE && !is_float(dtype)) continue;
            run_all(world, {.op = op, .dtype = dtype, .reduce_op = reduce_op, .in_place = in_place});
          }
    world.barrier();
  });
}

void move_uneven_parts(Subject& subject) {
  on_every_world(subject, 1, "parts of other sizes", [](Peer& peer) {
    PeerGroup world = peer.world();
    for (const gannet_dtype dtype : {GANNET_FLOAT32, GANNET_FLOAT64, GANNET_BFLOAT16, GANNET_INT64})
      for (const uint64_t seed : {0, 1, 2}) {
        const auto must_run = [&](const RequestedCollective& wanted) {
          if (!run(world, wanted) && dtype == GANNET_FLOAT32) fail_unserved(wanted, world);
        };
        must_run({.op = GANNET_ALL_GATHER, .dtype = dtype, .uneven = true, .seed = seed});
        must_run({.op = GANNET_ALL_GATHER, .dtype = dtype, .in_place = true, .uneven = true, .seed = seed});
        must_run({.op = GANNET_REDUCE_SCATTER, .dtype = dtype, .uneven = true, .seed = seed});
        must_run({.op = GANNET_ALL_TO_ALL, .dtype = dtype, .uneven = true, .seed = seed});
      }
    world.barrier();
  });
}

// Adds ones to a large number: each rounding of a partial sum loses its one; a sum that is rounded
// once loses none.
void sum_honestly(Subject& subject) {
  on_every_world(subject, 1, "sums of 16-bit types", [](Peer& peer) {
    PeerGroup world = peer.world();
    for (const gannet_dtype dtype : {GANNET_BFLOAT16, GANNET_FLOAT16}) {
      const uint32_t said = peer.api().sum_dtype(peer.self(), dtype);
      const std::string of_type = formatted("sum_dtype({}) is {}", name_of(dtype), name_of(said));
      if (said != GANNET_DTYPE_NONE && said != GANNET_FLOAT32 && said != static_cast<uint32_t>(dtype))
        throw CheckFailure(of_type, text_of(place()), "GANNET_FLOAT32, the type itself, or GANNET_DTYPE_NONE");
      for (const bool scatters : {false, true})
        for (const gannet_dtype sum_dtype : {GANNET_DTYPE_NONE, GANNET_FLOAT32}) {
          const uint64_t count = 5;
          CollectiveTrial trial(world.rank(), world.size(),
                                {.op = scatters ? GANNET_REDUCE_SCATTER : GANNET_ALL_REDUCE,
                                 .dtype = dtype,
                                 .count = count,
                                 .sum_dtype = sum_dtype});
          const double large = dtype == GANNET_BFLOAT16 ? 256 : 2048;
          for (uint64_t i = 0; i < (scatters ? count * world.size() : count); ++i)
            put(trial.sent(), i, dtype, world.rank() == 0 ? large : 1);
          PeerWork work;
          CallOutcome outcome = world.try_start(trial.args(), trial.name(), work);
          if (outcome.ok()) require_explained("work_wait", outcome = work.wait(peer.timeout_ms()));
          if (outcome.status == GANNET_UNSUPPORTED) {
            if (said != GANNET_DTYPE_NONE && sum_dtype == GANNET_DTYPE_NONE)
              throw CheckFailure(formatted("{}, and a sum of it is refused: {}", of_type, outcome.message), text_of(place()),
                                 "sum_dtype() says GANNET_DTYPE_NONE of a type that is not reduced");
            continue;
          }
          require_ok("collective", outcome);
          if (said == GANNET_DTYPE_NONE && world.size() > 1)
            throw CheckFailure(formatted("{}, and a sum of it is made", of_type), text_of(place()),
                               "sum_dtype() says what the plugin does");
          char rounded[8];
          put(rounded, 0, dtype, large + (world.size() - 1));
          const double once = get(rounded, 0, dtype), found = get(trial.received(), 0, dtype);
          const bool is_once = sum_dtype == GANNET_FLOAT32 || said == GANNET_FLOAT32;
          // Other sums lose at most all of the ones.
          if (found == once || (!is_once && found >= large && found <= once)) continue;
          throw CheckFailure(formatted("{}, and {} + {} ones is {}, not {}", of_type, large, world.size() - 1, found, once),
                             text_of(place()));
        }
    }
    world.barrier();
  });
}

}  // namespace gannet::kit
