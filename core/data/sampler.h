// Computes which samples a rank reads, and in which order. All functions are pure.
#pragma once

#include <stddef.h>

#include <cstdint>
#include <vector>

namespace gannet::loading {

// The order of an epoch: 0 .. samples-1, permuted by seed + epoch if shuffled. It is the same on
// every platform: a Fisher-Yates shuffle over std::mt19937_64, with output fixed by the standard,
// and Gannet's own bounded draws (those of std::shuffle depend on the library).
std::vector<size_t> epoch_order(int64_t samples, bool shuffle, int64_t seed, int64_t epoch);

// Divides the rest of an epoch, after its first `given` samples, into micro-batches for every rank.
struct EpochPartition {
  int64_t samples = 0;  // number of samples in the dataset
  int64_t given = 0;    // number of samples given so far to all ranks together, in the epoch's order
  int64_t batch_size = 1;
  int64_t rank = 0, world_size = 1;
  bool drop_last = false;
  int64_t multiple = 1;

  int64_t samples_per_rank() const;
  int64_t all_micro_batches() const;  // before `multiple` is applied
  int64_t leftover() const;           // number of micro-batches omitted because of `multiple`
  int64_t micro_batches() const { return all_micro_batches() - leftover(); }

  // The samples of this rank's micro-batch `index`. At its end, the order wraps around, so that
  // all ranks get equal numbers of samples.
  std::vector<size_t> micro_batch(const std::vector<size_t>& order, int64_t index) const;
  // The number of samples given to all ranks after `micro_batches` more micro-batches. Samples that
  // are repeated at the end are not counted.
  int64_t given_after(int64_t micro_batches) const;
};

}  // namespace gannet::loading
