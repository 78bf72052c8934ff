// The batch triad: train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x world size.
//
//   complete_batch({.train = 32, .micro = 4}, /*world_size=*/2);   // accumulation 4
//
// complete_batch() is a pure function. It follows DeepSpeed 0.19's rules, by which two given
// numbers determine the third.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gannet::config {

struct GivenBatch {
  std::optional<int64_t> train, micro, accumulation;
};

struct Batch {
  int64_t train = 0, micro = 0, accumulation = 0;
};

// Throws Error(kConfig) with the numbers if they do not fit, one is below 1, or neither train nor
// micro is given; `where` is the prefix of the message. `rank_is_set`: whether the environment has
// RANK; if not, the message explains why the world size is 1.
Batch complete_batch(const GivenBatch& given, int64_t world_size, const std::string& where = "", bool rank_is_set = true);

// The world size at which all three batch sizes fit, or 1 if they do not determine one.
int64_t implied_world_size(const GivenBatch& given);

}  // namespace gannet::config
