// N ranks of a Comm, a process each: forked from the check's own, and judged by it.
//
//   run_world(3, "an all_reduce of fp32", [&](uint32_t rank, const gannet_store& store) { ...; throw Failed(...); });
#pragma once

#include <gannet/abi.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gannet::kit {

struct WorldOptions {
  std::chrono::milliseconds timeout{10000};  // of the rendezvous and of the store
  std::vector<uint32_t> dying = {};          // ranks that end by a signal: the check wants it so
};

constexpr uint32_t kMostRanks = 4;

// Returns when every rank's body has returned. What the first rank found is thrown here; a rank that crashed goes before those
// that noticed it. `what` goes into the report.
void run_world(uint32_t size, const std::string& what, const std::function<void(uint32_t rank, const gannet_store& store)>& body,
               const WorldOptions& options = {});

// What a failure says of a rank: "rank 1 of 3, ...".
void set_rank_config(uint32_t rank, uint32_t size, const std::string& what);

}  // namespace gannet::kit
