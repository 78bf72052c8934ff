// Runs N ranks of a Comm, each in a fork of the check's process, which evaluates their results.
//
//   run_world(3, "an all_reduce of fp32", [&](uint32_t rank, const gannet_store& store) { ...; throw CheckFailure(...); });
#pragma once

#include <gannet/abi.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gannet::kit {

struct WorldOptions {
  std::chrono::milliseconds timeout{10000};  // for the rendezvous and the store
  std::vector<uint32_t> dying = {};          // ranks that the check kills with a signal
};

constexpr uint32_t kMostRanks = 4;

// Returns when every rank has ended. Throws the CheckFailure or SkippedCheck of the first rank that threw
// one; a rank that crashed takes precedence over those that noticed it. `what` goes into the report.
void run_world(uint32_t size, const std::string& what, const std::function<void(uint32_t rank, const gannet_store& store)>& body,
               const WorldOptions& options = {});

// Sets how a failure describes a rank: "rank 1 of 3, ...".
void set_rank_config(uint32_t rank, uint32_t size, const std::string& what);

}  // namespace gannet::kit
