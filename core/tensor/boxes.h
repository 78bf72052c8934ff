// Computes which elements of a tensor a rank holds if an axis of parallelism splits the tensor, and
// which elements two such shards share.
//
// A split is one or more boxes of the whole tensor. Concatenated along one dimension, they are the
// local tensor. On the first of two ranks, a fused QKV weight [3h, k] is three boxes of h / 2 rows
// each; grouped heads and experts are similar. ZeRO then cuts the flattened local tensor: a region
// is a contiguous run of its elements.
//
//   whole [6, 4]                 local [3, 4] of rank 0           flattened, cut by ZeRO
//     q q q q   box 0              q q q q                        [q q q q k k | k k v v v v]
//     . . . .                      k k k k
//     k k k k   box 1              v v v v
//     . . . .
//     v v v v   box 2
//     . . . .
//
// All of these are pure functions. Input shapes and splits must be valid according to
// split_fault.
#pragma once

#include <gannet/split.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gannet {

using Shape = std::vector<int64_t>;

struct Split {
  std::vector<Box> boxes = {};  // empty: the whole tensor
  int64_t dim = 0;              // the boxes are concatenated along this dimension; in all others they have equal sizes
  bool is_whole() const { return boxes.empty(); }
  bool operator==(const Split&) const = default;
};

int64_t numel_of(const Shape& shape);

// Returns "" if the split is valid for a tensor of this shape, else a description of the fault:
// "has a box ...".
std::string split_fault(const Shape& shape, const Split& split);

// Merges boxes that are adjacent in the whole tensor as well. If a single box remains that covers
// the whole tensor, the result is the empty split.
Split simplified(const Shape& shape, const Split& split);

// The shape of the local tensor, which the boxes make up.
Shape local_shape(const Shape& shape, const Split& split);

// The elements [begin, begin + numel) of the flattened local tensor.
struct LocalRegion {
  const Shape& shape;  // shape of the whole tensor
  const Split& split;
  int64_t begin = 0, numel = 0;
};

// Calls copy(at_a, at_b, count) for each contiguous run of elements that both regions have: the
// elements [at_a, at_a + count) of region a are the elements [at_b, at_b + count) of region b.
// Stops and returns false if copy returns false. The cost is proportional to the number of runs,
// plus one search per pair of boxes for the first run.
bool each_overlap(const LocalRegion& a, const LocalRegion& b,
                  const std::function<bool(int64_t at_a, int64_t at_b, int64_t count)>& copy);

// The position, in the flattened whole tensor, of element `begin` of the flattened local tensor.
int64_t first_element(const Shape& shape, const Split& split, int64_t begin);

// Returns a region as boxes of the whole tensor. If the tensor has n dimensions, there are at most
// 2n - 1 for each box of the split.
std::vector<Box> boxes_of(const LocalRegion& region);

// Returns "" if the boxes cover a tensor of this shape exactly once, else a description of the
// first gap or overlap: "misses elements [0:2, 4:8] of [2, 8]". No box may be empty.
std::string cover_fault(const Shape& shape, std::vector<Box> boxes);

// Returns the begin and end in each dimension: "[0:2, 4:8]".
std::string box_text(const Box& box);

}  // namespace gannet
