#include "kit/optimizer/cut.h"

#include <algorithm>

#include "base/format.h"
#include "kit/numbers.h"
#include "params/layout.h"

namespace gannet::kit {
namespace {

// The tensors of a group, in order.
std::vector<size_t> tensors_of(const Problem& problem, uint32_t group) {
  std::vector<size_t> found;
  for (size_t t = 0; t < problem.tensors.size(); ++t)
    if (problem.tensors[t].group == group) found.push_back(t);
  return found;
}

uint64_t padded(uint64_t numel, uint64_t alignment = zero::kAlignment) { return (numel + alignment - 1) / alignment * alignment; }

// Separates pieces where tensors have missed different numbers of updates, and leaves out the gaps
// between them, as cut_by_lag() of core/params/pieces.h does.
ProblemCut cut_by_lag(const Problem& problem, ProblemCut cut) {
  const bool is_needed =
      std::any_of(problem.tensors.begin(), problem.tensors.end(), [](const TensorSpec& tensor) { return tensor.joins != 0; });
  if (!is_needed) return cut;
  for (auto& pieces : cut.ranks) {
    std::vector<CutPiece> kept;
    for (const CutPiece& piece : pieces)
      for (size_t first = 0; first < piece.parts.size();) {
        const auto lag = [&](size_t part) { return problem.tensors[piece.parts[part].tensor].joins; };
        size_t last = first;
        while (last + 1 < piece.parts.size() && lag(last + 1) == lag(first)) ++last;
        const uint64_t begin = piece.parts[first].offset;
        CutPiece& own = kept.emplace_back(CutPiece{piece.group, 0, {}});
        for (; first <= last; ++first) {
          own.parts.push_back(piece.parts[first]);
          own.parts.back().offset -= begin;
          own.numel = own.parts.back().offset + own.parts.back().numel;
        }
      }
    pieces = std::move(kept);
  }
  return cut;
}

// The ends of pages: multiples of `page`, or the ends of tensors.
std::vector<int64_t> page_ends(const std::vector<zero::TensorPart>& parts, int64_t numel, int64_t page, bool whole_tensors) {
  std::vector<int64_t> ends;
  if (whole_tensors)
    for (const auto& part : parts) ends.push_back(static_cast<int64_t>(padded(static_cast<uint64_t>(part.own + part.numel))));
  else
    for (int64_t end = page; end < numel; end += page) ends.push_back(end);
  if (ends.empty() || ends.back() < numel) ends.push_back(numel);
  return ends;
}

}  // namespace

ProblemCut uncut(const Problem& problem, const CutRules& rules) {
  const uint64_t alignment = std::max<uint64_t>(zero::kAlignment, rules.alignment);
  ProblemCut cut{"one piece for each group", {{}}};
  for (uint32_t group = 0; group < problem.groups(); ++group) {
    CutPiece& piece = cut.ranks[0].emplace_back(CutPiece{group, 0, {}});
    for (const size_t t : tensors_of(problem, group)) {
      piece.parts.push_back({t, 0, problem.tensors[t].numel, piece.numel});
      piece.numel += padded(problem.tensors[t].numel, alignment);
    }
  }
  return cut_by_lag(problem, std::move(cut));
}

ProblemCut by_tensor(const Problem& problem) {
  ProblemCut cut{"one piece for each tensor", {{}}};
  for (uint32_t group = 0; group < problem.groups(); ++group)
    for (const size_t t : tensors_of(problem, group))
      cut.ranks[0].push_back({group, problem.tensors[t].numel, {{t, 0, problem.tensors[t].numel, 0}}});
  return cut;
}

ProblemCut sharded(const Problem& problem, const CutRules& rules, uint32_t ranks, int64_t bucket_numel, int64_t page_numel) {
  ProblemCut cut{
      formatted("{} rank{}, buckets of {}, pages of {} elements", ranks, ranks > 1 ? "s" : "", bucket_numel, page_numel), {}};
  const auto alignment = std::max<int64_t>(zero::kAlignment, static_cast<int64_t>(rules.alignment));
  page_numel = (page_numel + alignment - 1) / alignment * alignment;
  cut.ranks.resize(ranks);
  for (uint32_t group = 0; group < problem.groups(); ++group) {
    const std::vector<size_t> tensors = tensors_of(problem, group);
    std::vector<int64_t> numels;
    for (const size_t t : tensors) numels.push_back(static_cast<int64_t>(problem.tensors[t].numel));
    const zero::Layout layout = rules.whole_tensors && ranks > 1 ? zero::lay_out_whole(numels, bucket_numel, ranks, alignment)
                                                                 : zero::lay_out(numels, bucket_numel, ranks, alignment);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const auto shards = zero::shards_of(layout, rank, ranks);
      const auto parts = zero::parts_of(layout, shards);
      const int64_t numel = shards.empty() ? 0 : shards.back().own + shards.back().numel;
      const std::vector<int64_t> ends = page_ends(parts, numel, page_numel, rules.whole_tensors);
      for (const zero::Shard& shard : shards)
        for (int64_t begin = shard.own; begin < shard.own + shard.numel;) {
          const int64_t end = std::min(shard.own + shard.numel, *std::upper_bound(ends.begin(), ends.end(), begin));
          CutPiece& piece = cut.ranks[rank].emplace_back(CutPiece{group, static_cast<uint64_t>(end - begin), {}});
          for (const zero::TensorPart& part : parts) {
            const int64_t first = std::max(part.own, begin), last = std::min(part.own + part.numel, end);
            if (first < last)
              piece.parts.push_back({tensors[part.tensor], static_cast<uint64_t>(part.begin + first - part.own),
                                     static_cast<uint64_t>(last - first), static_cast<uint64_t>(first - begin)});
          }
          begin = end;
        }
    }
  }
  return cut_by_lag(problem, std::move(cut));
}

ProblemCut anywhere(const Problem& problem, const CutRules& rules, uint64_t seed) {
  ProblemCut cut{formatted("tensors cut at any place (seed {})", seed), {{}}};
  for (uint32_t group = 0; group < problem.groups(); ++group)
    for (const size_t t : tensors_of(problem, group)) {
      const uint64_t numel = problem.tensors[t].numel;
      // Cut in halves, or in pieces of different lengths.
      for (uint64_t begin = 0, k = 0; begin < numel; ++k) {
        uint64_t length = seed == 0 ? numel / 2 : 1 + mixed(seed, t, k) % (numel / 3 + 2);
        length = std::max((length + rules.alignment - 1) / rules.alignment * rules.alignment, rules.alignment);
        if (rules.whole_tensors) length = numel;
        length = std::min(length, numel - begin);
        cut.ranks[0].push_back({group, length, {{t, begin, length, 0}}});
        begin += length;
      }
    }
  return cut;
}

}  // namespace gannet::kit
