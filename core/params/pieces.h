// The units that the norm and the update work on: stretches of a range with contiguous gradients.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "params/range.h"

namespace gannet {

// Pages begin at multiples of this number of elements, which is at least one page of direct I/O in
// every dtype.
inline constexpr int64_t kPageGranularity = 4096;
inline constexpr int64_t kNoPages = std::numeric_limits<int64_t>::max();

struct Piece {
  at::Tensor grad;    // dense, of numel elements
  zero::Shard place;  // its place in the whole range and in this rank's arrays
  size_t sub_group;   // index into range.sub_groups
  size_t first;       // index of its first tensor
  const Segment* segments;
  size_t segment_count;
  std::vector<Segment> tensor_segments;  // holds the segments, unless the range owns them
  int64_t lag = 0;                       // the lag of all its tensors (TrainedParameter::lag)
};

// Returns where each page of this rank's arrays ends. A page has at most `page_numel` elements. If
// the range keeps whole tensors, pages end at tensor boundaries, so a page with only one tensor may
// exceed `page_numel`.
std::vector<int64_t> page_ends(const Range& range, int64_t page_numel);

// Returns a range's pieces, in the range's order. No piece crosses the end of a page (page_ends).
std::vector<Piece> pieces_of(const Range& range, int64_t page_numel);

// Cuts the pieces where the number of updates differs between tensors, and leaves out the tensors
// that this update skips. `lags`: [parameters of the range] the lag of each, or kSkipped to leave
// it out.
inline constexpr int64_t kSkipped = std::numeric_limits<int64_t>::min();
std::vector<Piece> cut_by_lag(std::vector<Piece> pieces, const Range& range, const std::vector<int64_t>& lags);

}  // namespace gannet
