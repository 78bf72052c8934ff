// The stretches of a range's gradients that are reduced at once, in elements: which parameters are in each, and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "params/range.h"

namespace gannet {

struct ReduceBucket {
  struct Stretch {  // of a parameter
    int64_t begin;  // in the parameter
    int64_t at;     // in the bucket
    int64_t numel;
  };
  size_t first = 0, last = 0;                     // parameters [first, last) of the range
  int64_t offset = 0, numel = 0;                  // in the range's flat buffer
  zero::Shard shard;                              // this rank's
  std::vector<std::vector<Stretch>> of;           // [last - first] where each parameter's gradient goes
  std::vector<std::pair<int64_t, int64_t>> gaps;  // (at, numel) of the padding
};

// Where parameters are sharded, each is cut for all ranks, and up to `numel` elements of them make a bucket:
//
//   bucket of t0, t1 on 2 ranks    | t0 part 0 | t1 part 0 | t0 part 1 | t1 part 1 |    one reduce-scatter for both
//
// elsewhere the range's own buckets, in which tensors lie one after another.
class ReduceBuckets {
 public:
  // In the order in which backward completes them: the last parameters first.
  static std::vector<ReduceBucket> of(const Range& range, int64_t numel, uint32_t ranks);

 private:
  static std::vector<ReduceBucket::Stretch> stretches(const Range& range, const ReduceBucket& bucket, size_t parameter);
};

}  // namespace gannet
