// What the norm and the update take at once: a stretch of a range whose gradients lie one after another.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "params/range.h"

namespace gannet {

// Elements. Pages begin at multiples of it: at least a page of direct I/O in every dtype.
inline constexpr int64_t kPageGranularity = 4096;
inline constexpr int64_t kNoPages = std::numeric_limits<int64_t>::max();

struct Piece {
  at::Tensor grad;    // dense, of numel elements
  zero::Shard place;  // where it lies: in the whole range, in this rank's arrays
  size_t sub_group;   // of range.sub_groups, that it belongs to
  size_t first;       // its first tensor
  const Segment* segments;
  size_t segment_count;
  std::vector<Segment> own_segments;  // behind `segments`, where they are no one's else
  int64_t lag = 0;                    // of all its tensors (TrainedParameter)
};

// Where pages of at most `page_numel` elements of this rank's arrays end; where the range keeps whole tensors at tensors'
// borders, so that a page is as large as its only tensor, or at most that.
std::vector<int64_t> page_ends(const Range& range, int64_t page_numel);

// In the order of their places. No piece goes past the end of such a page.
std::vector<Piece> pieces_of(const Range& range, int64_t page_numel);

// The same, cut where two tensors have different numbers of updates behind them; without those that do not move in this one.
// `lags`: [parameters of the range], kSkipped for those.
inline constexpr int64_t kSkipped = std::numeric_limits<int64_t>::min();
std::vector<Piece> cut_by_lag(std::vector<Piece> pieces, const Range& range, const std::vector<int64_t>& lags);

}  // namespace gannet
