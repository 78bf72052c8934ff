// The rendezvous of the ranks: rank 0 serves a store at MASTER_ADDR:MASTER_PORT. Every rank
// announces itself there and waits for all others, reporting the missing ones.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "control/environment.h"
#include "control/store.h"

namespace gannet::control {

// The limits of a wait: it ends at `end`, and the missing ranks are reported every `report_every`.
struct Patience {
  explicit Patience(std::chrono::milliseconds time_out, std::chrono::milliseconds report_every = std::chrono::seconds(10));
  std::chrono::milliseconds left() const;
  std::string spent() const;  // "20 s of 600 s"
  std::chrono::milliseconds total, report_every;
  std::chrono::steady_clock::time_point start, end;
};

struct RendezvousResult {
  std::unique_ptr<Store> store;
  uint32_t local_rank = 0;
  std::string host_address;                   // the address at which other ranks reach this one; "" if unknown
  std::vector<std::string> cores_of_machine;  // own_cores() of each rank of this machine
  bool is_first_of_machine = true;
  std::vector<std::string> hosts;  // each rank's machine; empty: all are on one
};

// `generation` counts the worlds that this process has made; the keys depend on it, since the store
// may still have keys of an earlier world. Throws Error(kUnavailable) if the port is taken,
// kTimeout with the ranks that did not arrive, kConfig if two processes claim the same rank, and
// kMismatch if the ranks disagree on the world's size.
RendezvousResult meet(const Environment& environment, uint32_t generation, Patience patience);

// Waits until each rank has set "<key>/<rank>". On a time-out, throws Error(kTimeout) with the
// missing ranks on every waiting rank. `what` completes "waiting for rank 1 of 4 <what>".
void wait_for_ranks(Store& store, const std::string& key, uint32_t self, uint32_t world_size, const std::string& what,
                    const Patience& patience);

// Returns "rank 1" or "ranks 1, 3-5".
std::string name_ranks(const std::vector<uint32_t>& ranks);

}  // namespace gannet::control
