// N ranks in this process, one thread each, and the host's collectives among them.
//
//   run_ranks(3, [&](SimulatedRanks& ranks, uint32_t rank) { ranks.all_reduce(rank, values, count, GANNET_SUM); ... });
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "interfaces/host.h"

namespace gannet::kit {

class SimulatedRanks {
 public:
  explicit SimulatedRanks(uint32_t size) : given_(size) {}
  uint32_t size() const { return static_cast<uint32_t>(given_.size()); }
  // Reduces in rank order, so that the result is the same on all ranks and in every
  // run.
  void all_reduce(uint32_t rank, double* values, size_t count, gannet_reduce_op op);
  void collective(uint32_t rank, const gannet_host_collective& args);
  // Call when a rank has failed: ranks that are waiting then throw an exception.
  void abort();

 private:
  struct AbortedRank {};
  friend void run_ranks(uint32_t, const std::function<void(SimulatedRanks&, uint32_t)>&);
  // Makes this rank's pointer visible to all ranks; it stays valid until the next barrier().
  void publish(uint32_t rank, const void* pointer, uint64_t mark);
  void barrier();

  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t arrived_ = 0;
  uint64_t generation_ = 0;
  bool is_aborted_ = false;
  struct PublishedPointer {
    const void* pointer = nullptr;
    uint64_t mark = 0;
  };
  std::vector<PublishedPointer> given_;
};

// The first exception thrown by a rank ends all ranks and is rethrown here. One rank runs on the
// calling thread.
void run_ranks(uint32_t size, const std::function<void(SimulatedRanks& ranks, uint32_t rank)>& body);

// The collectives of one rank, for Host::OpenCollectives.
class RankCollectives : public HostCollectives {
 public:
  RankCollectives(SimulatedRanks& ranks, uint32_t rank) : ranks_(ranks), rank_(rank) {}
  void run(const gannet_host_collective& args) override { ranks_.collective(rank_, args); }

 private:
  SimulatedRanks& ranks_;
  uint32_t rank_;
};

}  // namespace gannet::kit
