#include "data/sampler.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

namespace gannet::loading {
namespace {

// Draws uniformly from [0, bound): rejects draws that would favor small results.
uint64_t draw_below(uint64_t bound, std::mt19937_64& generator) {
  const uint64_t rejected = (0 - bound) % bound;  // 2^64 mod bound
  for (;;) {
    const uint64_t draw = generator();
    if (draw >= rejected) return draw % bound;
  }
}

}  // namespace

std::vector<size_t> epoch_order(int64_t samples, bool shuffle, int64_t seed, int64_t epoch) {
  std::vector<size_t> order(static_cast<size_t>(samples));
  std::iota(order.begin(), order.end(), size_t{0});
  if (!shuffle) return order;
  std::mt19937_64 generator(static_cast<uint64_t>(seed) + static_cast<uint64_t>(epoch));
  for (size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[draw_below(left, generator)]);
  return order;
}

int64_t EpochPartition::samples_per_rank() const {
  const int64_t left = std::max<int64_t>(samples - given, 0);
  return drop_last ? left / world_size : (left + world_size - 1) / world_size;
}

int64_t EpochPartition::all_micro_batches() const {
  const int64_t mine = samples_per_rank();
  return drop_last ? mine / batch_size : (mine + batch_size - 1) / batch_size;
}

int64_t EpochPartition::leftover() const {
  // Samples given earlier count towards the multiple, so that an interrupted epoch ends where it
  // would have ended without the interruption. At a different world size or batch size, they may
  // not be a whole number of micro-batches; then the multiple is counted from here.
  const int64_t each = batch_size * world_size;
  const int64_t before = given % each == 0 ? given / each : 0;
  return std::min((before + all_micro_batches()) % multiple, all_micro_batches());
}

std::vector<size_t> EpochPartition::micro_batch(const std::vector<size_t>& order, int64_t index) const {
  const int64_t size = std::min(batch_size, samples_per_rank() - index * batch_size);  // smaller in the epoch's last micro-batch
  // The micro-batches of all ranks with the same index are one contiguous range of the order,
  // divided by rank. In the last one, `size` is smaller by the same amount on all ranks.
  const int64_t first = given + index * batch_size * world_size + rank * size;
  std::vector<size_t> indices;
  indices.reserve(static_cast<size_t>(size));
  for (int64_t place = first; place < first + size; ++place) indices.push_back(order[static_cast<size_t>(place % samples)]);
  return indices;
}

int64_t EpochPartition::given_after(int64_t micro_batches) const {
  return std::min(samples, given + micro_batches * batch_size * world_size);
}

}  // namespace gannet::loading
