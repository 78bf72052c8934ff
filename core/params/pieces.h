// What the norm and the update take at once: a stretch of a range whose gradients lie one after another.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "params/range.h"

namespace gannet {

inline constexpr int64_t kNoPages = std::numeric_limits<int64_t>::max();

struct Piece {
  at::Tensor grad;    // dense, of numel elements
  zero::Shard place;  // where it lies: in the whole range, in this rank's arrays
  size_t sub_group;   // of range.sub_groups, that it belongs to
  size_t first;       // its first tensor
  const gannet_segment* segments;
  size_t segment_count;
  std::vector<gannet_segment> own_segments;  // behind `segments`, where they are no one's else
  int64_t lag = 0;                           // of all its tensors (TrainedParameter)
};

// In the order of their places. No piece goes past the end of a page of `page_numel` elements of this rank's arrays.
std::vector<Piece> pieces_of(const Range& range, int64_t page_numel);

// The same, cut where two tensors have different numbers of updates behind them; without those that do not move in this one.
// `lags`: [parameters of the range], kSkipped for those.
inline constexpr int64_t kSkipped = -1;
std::vector<Piece> cut_by_lag(std::vector<Piece> pieces, const Range& range, const std::vector<int64_t>& lags);

}  // namespace gannet
