// One collective on one rank: its buffers, its arguments, and its expected result from a plain loop
// over ranks.
//
//   CollectiveTrial trial(group.rank(), group.size(), {.op = GANNET_ALL_REDUCE, .dtype = GANNET_BFLOAT16, .count = 17});
//   PeerWork work = group.start(trial.args(), trial.name());
//   work.must_end();
//   trial.check();                 // CheckFailure if an element, a guard byte or the input is wrong
#pragma once

#include <gannet/abi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kit/memory.h"

namespace gannet::kit {

class PeerGroup;

struct RequestedCollective {
  gannet_collective op = GANNET_ALL_REDUCE;
  gannet_dtype dtype = GANNET_FLOAT32;
  gannet_reduce_op reduce_op = GANNET_SUM;
  uint64_t count = 0;
  uint32_t peer = 0;
  bool in_place = false;
  bool uneven = false;  // parts of different sizes, some of them empty, instead of `count`
  uint64_t seed = 0;    // the seed of the elements; the same on all ranks
  gannet_dtype sum_dtype = GANNET_DTYPE_NONE;
};

class CollectiveTrial {
 public:
  CollectiveTrial(uint32_t rank, uint32_t size, const RequestedCollective& wanted);
  CollectiveTrial(CollectiveTrial&&) = default;

  const gannet_collective_args& args() const { return args_; }
  const std::string& name() const { return name_; }
  const RequestedCollective& wanted() const { return wanted_; }
  void* received() const { return args_.recv; }
  void* sent() const { return const_cast<void*>(args_.send); }
  // Call when the work is over: throws CheckFailure if the result, input or a guard byte is wrong.
  void check() const;

 private:
  void fill(void* buffer, uint32_t of_rank, uint64_t begin, uint64_t count) const;
  double value(uint32_t of_rank, uint64_t element) const;
  double reduced(uint64_t element) const;
  void add_expected(uint32_t of_rank, uint64_t begin, uint64_t count);
  void check_sent() const;

  RequestedCollective wanted_;
  uint32_t rank_, size_;
  std::string name_;
  Buffer send_, recv_;
  std::vector<uint64_t> send_counts_, recv_counts_;
  uint64_t sent_ = 0;             // number of elements sent
  std::vector<double> expected_;  // for recv, or for this rank's part of it
  void* result_ = nullptr;
  gannet_collective_args args_{};
};

// Starts the collective, waits for it and checks it. Returns false if the plugin does not support
// it: UNSUPPORTED with an error message, on all ranks.
bool run(PeerGroup& group, const RequestedCollective& wanted);

}  // namespace gannet::kit
