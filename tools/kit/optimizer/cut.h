// How a simulated run cuts a problem: which pieces of which tensors each rank has. Includes the
// cuts of core/params, made by its own layout code, and other cuts that the contract allows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kit/optimizer/problem.h"

namespace gannet::kit {

struct CutPart {  // a part of a tensor, in a piece
  size_t tensor;
  uint64_t begin, numel;  // in the tensor
  uint64_t offset;        // in the piece
};
struct CutPiece {
  uint32_t group;
  uint64_t numel;  // including gaps between tensors, which stay zero
  std::vector<CutPart> parts;
};
struct ProblemCut {
  std::string name;                          // "3 ranks, pages of 64 elements"
  std::vector<std::vector<CutPiece>> ranks;  // [ranks]
};

struct CutRules {  // from the plugin's description
  bool whole_tensors = false;
  uint64_t alignment = 1;
};

ProblemCut uncut(const Problem& problem, const CutRules& rules);  // one rank, one piece for each group
ProblemCut by_tensor(const Problem& problem);                     // one rank, one piece for each tensor
// ZeRO's cut: buckets of `bucket_numel`, each sharded over the ranks, in pages.
ProblemCut sharded(const Problem& problem, const CutRules& rules, uint32_t ranks, int64_t bucket_numel, int64_t page_numel);
// One rank, with every tensor cut where the contract allows it: at odd positions unless the rules
// forbid that.
ProblemCut anywhere(const Problem& problem, const CutRules& rules, uint64_t seed);

}  // namespace gannet::kit
