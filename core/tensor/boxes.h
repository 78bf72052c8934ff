// Which elements of a tensor a rank holds where an axis of parallelism splits it, and which of two such parts are the same.
//
// A split is one or more boxes of the whole tensor, side by side along one dimension: this is the local tensor. A fused QKV
// weight [3h, k] on the first of two ranks is three boxes of h / 2 rows each; heads that are grouped and experts likewise. ZeRO
// cuts the local tensor's flattened elements once more: a region is a run of them.
//
//   whole [6, 4]                 local [3, 4] of rank 0           flattened: a run of ZeRO's
//     q q q q   box 0              q q q q                        [q q q q k k | k k v v v v]
//     . . . .                      k k k k
//     k k k k   box 1              v v v v
//     . . . .
//     v v v v   box 2
//     . . . .
//
// Pure functions; the shapes and splits that they take have passed split_fault.
#pragma once

#include <gannet/split.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gannet {

using Shape = std::vector<int64_t>;

struct Split {
  std::vector<Box> boxes = {};  // none: the whole tensor
  int64_t dim = 0;              // along which the boxes lie side by side; their other sizes are equal
  bool is_whole() const { return boxes.empty(); }
  bool operator==(const Split&) const = default;
};

int64_t numel_of(const Shape& shape);

// "" where the split can be one of a tensor of this shape, else what is wrong with it: "has a box ...".
std::string split_fault(const Shape& shape, const Split& split);

// Boxes that lie side by side in the whole tensor, too, are one; a single box that is all of the tensor is no split.
Split simplified(const Shape& shape, const Split& split);

// Of the tensor that the boxes make up.
Shape local_shape(const Shape& shape, const Split& split);

// Elements [begin, begin + numel) of the flattened local tensor.
struct Region {
  const Shape& shape;  // of the whole tensor
  const Split& split;
  int64_t begin = 0, numel = 0;
};

// Calls copy(at_a, at_b, count) for each stretch of elements that both regions have: elements [at_a, at_a + count) of a's run are
// elements [at_b, at_b + count) of b's. Ends early, and returns false, where it returns false. Work: what the stretches take, and
// a search for the first of each pair of boxes.
bool each_overlap(const Region& a, const Region& b, const std::function<bool(int64_t at_a, int64_t at_b, int64_t count)>& copy);

// The place in the flattened whole tensor of element `begin` of the flattened local one.
int64_t first_element(const Shape& shape, const Split& split, int64_t begin);

// A region as boxes of the whole tensor: at most 2n - 1 for each box of the split, n dimensions.
std::vector<Box> boxes_of(const Region& region);

// Whether the boxes cover a tensor of this shape once, else a sentence about the first gap or overlap: "misses elements [0:2,
// 4:8] of [2, 8]". No box is empty.
std::string cover_fault(const Shape& shape, std::vector<Box> boxes);

// "[0:2, 4:8]": from and to of each dimension.
std::string box_text(const Box& box);

}  // namespace gannet
