// The units that the norm and the update work on: stretches of a range with contiguous gradients.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "params/range.h"

namespace gannet {

// In elements. Pages begin at multiples of it: at least a page of direct I/O in every dtype.
inline constexpr int64_t kPageGranularity = 4096;
inline constexpr int64_t kNoPages = std::numeric_limits<int64_t>::max();

struct Piece {
  at::Tensor grad;    // dense, of numel elements
  zero::Shard place;  // in the whole range, and in this rank's arrays
  size_t sub_group;   // index into range.sub_groups
  size_t first;       // its first tensor
  const Segment* segments;
  size_t segment_count;
  std::vector<Segment> tensor_segments;  // storage of `segments`, unless the range owns it
  int64_t lag = 0;                       // of all its tensors (TrainedParameter)
};

// Ends of the pages of at most `page_numel` elements of this rank's arrays. If the range keeps
// whole tensors, pages end at tensor borders, so a page may exceed `page_numel` if it has only one
// tensor.
std::vector<int64_t> page_ends(const Range& range, int64_t page_numel);

// In range order. No piece crosses the end of such a page.
std::vector<Piece> pieces_of(const Range& range, int64_t page_numel);

// The same pieces, cut where the number of updates differs between tensors, without the tensors
// that this update skips. `lags`: [parameters of the range], kSkipped for those.
inline constexpr int64_t kSkipped = std::numeric_limits<int64_t>::min();
std::vector<Piece> cut_by_lag(std::vector<Piece> pieces, const Range& range, const std::vector<int64_t>& lags);

}  // namespace gannet
