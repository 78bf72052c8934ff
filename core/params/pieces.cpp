#include "params/pieces.h"

#include <algorithm>

namespace gannet {

// Returns one piece per sub-group of the range, or one per tensor if autograd's own gradients are
// used.
std::vector<Piece> whole_pieces(const Range& range) {
  std::vector<Piece> pieces;
  bool is_flat = true;
  if (!range.is_sharded())
    for (const auto& parameter : range.parameters)
      is_flat = is_flat && range.grad.defined() && parameter.held.is_alias_of(range.grad);
  if (is_flat) {
    for (size_t s = 0; s < range.sub_groups.size(); ++s) {
      const auto& segments = range.segments[s];
      pieces.push_back({range.grad_of(range.sub_groups[s]),
                        range.sub_groups[s],
                        s,
                        segments.empty() ? 0 : segments[0].parameter,
                        segments.data(),
                        segments.size(),
                        {}});
    }
    return pieces;
  }
  pieces.reserve(range.parameters.size());
  for (size_t p = 0; p < range.parameters.size(); ++p) {
    const auto& parameter = range.parameters[p];
    pieces.push_back(
        {parameter.held, {parameter.offset, parameter.offset, parameter.numel}, 0, p, &range.tensor_segments[p], 1, {}});
  }
  return pieces;
}

std::vector<int64_t> page_ends(const Range& range, int64_t page_numel) {
  if (page_numel == kNoPages) return {range.shard_numel};
  std::vector<int64_t> ends;
  int64_t begin = 0, border = 0;  // the open page starts at `begin`; `border` is the last position where it may end
  // Extends the page to `next`, the next position where it may end. In padding it may end anywhere.
  const auto extend = [&](int64_t next, bool is_padding) {
    if (next - begin > page_numel && border > begin) ends.push_back(begin = border);
    for (; is_padding && next - begin > page_numel; begin += page_numel) ends.push_back(begin + page_numel);
    border = next;
  };
  if (range.keeps_whole_tensors)
    for (const auto& part : range.parts) {
      extend(part.own, true);
      extend(std::min((part.own + part.numel + kPageGranularity - 1) / kPageGranularity * kPageGranularity, range.shard_numel),
             false);
    }
  extend(range.shard_numel, true);
  if (begin < range.shard_numel) ends.push_back(range.shard_numel);
  return ends;
}

std::vector<Piece> pieces_of(const Range& range, int64_t page_numel) {
  std::vector<Piece> pieces = whole_pieces(range);
  if (page_numel == kNoPages) return pieces;
  const std::vector<int64_t> ends = page_ends(range, page_numel);
  std::vector<Piece> cut;
  for (Piece& piece : pieces) {
    const at::Tensor flat = piece.grad.view({-1});
    for (int64_t done = 0; done < piece.place.numel;) {
      const int64_t own = piece.place.own + done, page_end = *std::upper_bound(ends.begin(), ends.end(), own);
      const int64_t numel = std::min(piece.place.numel - done, page_end - own);
      Piece part{flat.narrow(0, done, numel),   {piece.place.offset + done, own, numel}, piece.sub_group, 0, nullptr, 0,
                 segments_in(range, own, numel)};
      part.first = part.tensor_segments.empty() ? piece.first : part.tensor_segments[0].parameter;
      cut.push_back(std::move(part));
      done += numel;
    }
  }
  for (Piece& part : cut) {
    part.segments = part.tensor_segments.data();
    part.segment_count = part.tensor_segments.size();
  }
  return cut;
}

std::vector<Piece> cut_by_lag(std::vector<Piece> pieces, const Range& range, const std::vector<int64_t>& lags) {
  std::vector<Piece> kept;
  for (Piece& piece : pieces) {
    const at::Tensor flat = piece.grad.view({-1});
    for (size_t s = 0; s < piece.segment_count; ++s) {
      const int64_t lag = lags[piece.segments[s].parameter];
      if (lag == kSkipped) continue;
      size_t last = s;
      while (last + 1 < piece.segment_count && lags[piece.segments[last + 1].parameter] == lag) ++last;
      const int64_t begin = static_cast<int64_t>(piece.segments[s].offset),
                    numel = static_cast<int64_t>(piece.segments[last].offset + piece.segments[last].numel) - begin;
      const int64_t own = piece.place.own + begin;
      Piece& part = kept.emplace_back(Piece{flat.narrow(0, begin, numel),
                                            {piece.place.offset + begin, own, numel},
                                            piece.sub_group,
                                            piece.segments[s].parameter,
                                            nullptr,
                                            0,
                                            segments_in(range, own, numel)});
      part.segment_count = part.tensor_segments.size();
      part.lag = lag;
      s = last;
    }
  }
  for (Piece& part : kept) part.segments = part.tensor_segments.data();
  return kept;
}

}  // namespace gannet
