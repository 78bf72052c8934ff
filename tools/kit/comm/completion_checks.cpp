// Checks of when a work completes: for a rank that queries, one that waits, and one that has lost a
// peer.
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/format.h"
#include "kit/comm/checks.h"
#include "kit/comm/ranks_of.h"
#include "kit/comm/trial.h"

namespace gannet::kit {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A collective that another rank must join, or a message that another rank must send.
RequestedCollective waiting(bool message, uint32_t other, uint64_t count) {
  if (message) return {.op = GANNET_RECV, .count = count, .peer = other};
  return {.count = count};
}

[[noreturn]] void fail(const std::string& found, const std::string& expected = "") {
  throw CheckFailure(found, text_of(place()), expected);
}

// The last rank starts its part of a collective, and of a message to rank 0, after the others have
// run `early` on theirs. `early` returns the function that ends the work.
template <class Early>
void with_a_late_rank(Peer& peer, Early&& early) {
  PeerGroup world = peer.world();
  const uint32_t late = world.size() - 1;
  for (const bool message : {false, true}) {
    world.barrier();
    const bool is_late = world.rank() == late;
    if (message && world.rank() != 0 && !is_late) continue;
    const std::string point = message ? "a recv waits" : "an all_reduce waits";
    if (is_late) peer.await(point, message ? 1 : late);
    const CollectiveTrial trial(
        world.rank(), world.size(),
        message && is_late ? RequestedCollective{.op = GANNET_SEND, .count = 1003, .peer = 0} : waiting(message, late, 1003));
    PeerWork work = world.start(trial.args(), trial.name());
    if (is_late) {
      work.must_end();
    } else {
      const auto end = early(work);
      peer.announce(point);
      end(work);
    }
    trial.check();
  }
  world.barrier();
}

void complete_late(Peer& peer) {
  with_a_late_rank(peer, [&](PeerWork& work) {
    for (int i = 0; i < 20; ++i) {
      if (work.is_over()) fail("work_query says that it is over, and a rank has not come yet");
      std::this_thread::sleep_for(milliseconds(1));
    }
    return [&peer](PeerWork& late) {
      const auto until = Clock::now() + milliseconds(peer.timeout_ms());
      while (!late.is_over() && Clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
      if (!late.is_over()) fail("work_query never says that it is over", "work_query alone sees the end of a work");
      const CallOutcome outcome = late.wait(0);
      if (outcome.status == GANNET_TIMEOUT)
        fail("work_wait timed out, and work_query had said that it is over", "work_wait returns at once");
      require_ok("work_wait", outcome);
    };
  });
}

}  // namespace

void complete(Subject& subject) {
  on_every_world(subject, 1, "work_block without a stream", [](Peer& peer) {
    PeerGroup world = peer.world();
    for (uint64_t i = 0; i < 5; ++i) {
      if (i == 2 && world.rank() == 0) std::this_thread::sleep_for(milliseconds(100));
      const CollectiveTrial trial(world.rank(), world.size(), {.count = 10'001, .seed = i});
      PeerWork work = world.start(trial.args(), trial.name());
      require_ok("work_block", work.block(nullptr));
      trial.check();
      if (!work.is_over()) fail("work_query says that it is not over, after work_block without a stream");
      require_ok("work_wait", work.wait(0));
    }
    world.barrier();
  });
  for (const uint32_t size : sizes_of(subject))
    if (size > 1) on_ranks(subject, size, "a rank comes late", complete_late);
}

void stay_pending(Subject& subject) {
  on_every_world(subject, 2, "a rank comes late", [](Peer& peer) {
    with_a_late_rank(peer, [](PeerWork& work) {
      for (const uint64_t limit : {0, 150}) {
        const auto start = Clock::now();
        const CallOutcome outcome = work.wait(limit);
        require_explained("work_wait", outcome);
        if (outcome.status != GANNET_TIMEOUT)
          fail(formatted("work_wait returned status {} before a rank had come: {}", outcome.status, outcome.message),
               "GANNET_TIMEOUT");
        const double waited = seconds_since(start), wanted = 1e-3 * static_cast<double>(limit);
        if (waited < 0.9 * wanted || waited > wanted + 2)
          fail(formatted("work_wait with a time-out of {} ms returned after {:.0f} ms", limit, 1e3 * waited));
      }
      return [](PeerWork& late) { late.must_end(); };
    });
  });
}

void abort_from_outside(Subject& subject) {
  for (const bool message : {false, true}) {
    on_ranks(subject, 2, message ? "abort of a recv" : "abort of an all_reduce", [message](Peer& peer) {
      PeerGroup world = peer.world();
      world.barrier();
      if (world.rank() == 1) {  // never joins
        peer.await("the aborted rank has ended", 1);
        return;
      }
      const CollectiveTrial trial(0, 2, waiting(message, 1, 1001));
      PeerWork work = world.start(trial.args(), trial.name());
      std::thread aborting([&] {
        std::this_thread::sleep_for(milliseconds(200));
        peer.abort();
      });
      const auto start = Clock::now();
      CallOutcome outcome;
      try {
        outcome = work.wait(peer.timeout_ms());
      } catch (...) {
        aborting.join();
        throw;
      }
      aborting.join();
      require_explained("work_wait", outcome);
      if (outcome.ok()) fail("work_wait succeeded, and the other rank had never come");
      if (outcome.status == GANNET_TIMEOUT || seconds_since(start) > 3)
        fail(formatted("work_wait returned status {} after {:.1f} s: {}", outcome.status, seconds_since(start), outcome.message),
             "an error of the aborted collective, at once");
      // Calls that are legal from here on must not wait for the other rank.
      const auto freeing = Clock::now();
      work.free();
      {
        const PeerGroup gone = std::move(world);
      }
      if (seconds_since(freeing) > 3)
        fail(formatted("work_free and group_destroy took {:.1f} s after an abort", seconds_since(freeing)));
      peer.announce("the aborted rank has ended");
    });
  }
}

void lose_a_peer(Subject& subject) {
  bool is_any = false;
  for (const uint32_t size : sizes_of(subject)) {
    if (size < 2) continue;
    is_any = true;
    for (const uint64_t count : {uint64_t{1001}, uint64_t{1} << 22}) {
      const WorldOptions options{.timeout = milliseconds(3000), .dying = {1}};
      on_ranks(
          subject, size, formatted("rank 1 is killed in an all_reduce of {} floats", count),
          [&](Peer& peer) {
            PeerGroup world = peer.world();
            run(world, {.count = 17});
            const CollectiveTrial trial(world.rank(), world.size(), {.count = count});
            if (world.rank() == 1) {
              PeerWork work;
              std::thread ending([count] {  // in the middle of a large collective, and before a small one
                std::this_thread::sleep_for(count > 10'000 ? std::chrono::microseconds(500) : std::chrono::microseconds(0));
                ::kill(::getpid(), SIGKILL);
              });
              if (count > 10'000) world.try_start(trial.args(), trial.name(), work);
              std::this_thread::sleep_for(milliseconds(10'000));
              ending.join();
            }
            // The collective may still complete on this rank; then the next one does not.
            const auto start = Clock::now();
            for (int tries = 0;; ++tries) {
              const CollectiveTrial next(world.rank(), world.size(), {.count = count});
              PeerWork work;
              CallOutcome outcome = world.try_start(next.args(), next.name(), work);
              if (outcome.ok()) outcome = work.wait(peer.timeout_ms());
              require_explained("work_wait", outcome);
              if (outcome.ok() && tries < 3) continue;
              if (outcome.status != GANNET_PEER_LOST && outcome.status != GANNET_TIMEOUT)
                fail(formatted("status {} with a rank that is dead: {}", outcome.status, outcome.message));
              const double waited = seconds_since(start), most = 1e-3 * static_cast<double>(peer.timeout_ms()) + 3;
              if (waited > most) fail(formatted("it took {:.1f} s, and the time-out is {} ms", waited, peer.timeout_ms()));
              peer.abort();
              work.free();
              break;
            }
          },
          options);
    }
  }
  if (!is_any) throw SkippedCheck("it serves no world of 2 ranks or more");
}

}  // namespace gannet::kit
