// The buckets in which a range's gradients are reduced: which parameters are in each, and at which
// offsets, in elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "params/range.h"

namespace gannet {

struct ReduceBucket {
  struct Stretch {  // a stretch of a parameter
    int64_t begin;  // where it begins in the parameter
    int64_t at;     // where it begins in the bucket
    int64_t numel;
  };
  size_t first = 0, last = 0;                     // parameters [first, last) of the range
  int64_t offset = 0, numel = 0;                  // in the range's flat buffer
  zero::Shard shard;                              // this rank's shard of the bucket
  std::vector<std::vector<Stretch>> of;           // [last - first] destinations of each parameter's gradient
  std::vector<std::pair<int64_t, int64_t>> gaps;  // (at, numel) of each stretch of padding
};

// If each parameter is cut into one shard per rank (Range::cuts_each_tensor), up to `numel` elements
// of parameters form a bucket:
//
//   bucket of t0, t1 on 2 ranks    | t0 part 0 | t1 part 0 | t0 part 1 | t1 part 1 |    one reduce-scatter for both
//
// Otherwise these are the range's own buckets, with tensors one after another.
class ReduceBuckets {
 public:
  // Returns the buckets in the order in which backward completes them: those of the last parameters
  // first.
  static std::vector<ReduceBucket> of(const Range& range, int64_t numel, uint32_t ranks);

 private:
  static std::vector<ReduceBucket::Stretch> stretches(const Range& range, const ReduceBucket& bucket, size_t parameter);
};

}  // namespace gannet
