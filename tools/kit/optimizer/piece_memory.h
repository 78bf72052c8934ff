// A piece's arrays and segments, as a simulated run hands them to the plugin.
#pragma once

#include <gannet/abi.h>

#include <string>
#include <vector>

#include "interfaces/optimizer.h"
#include "kit/memory.h"
#include "kit/optimizer/cut.h"
#include "kit/optimizer/problem.h"

namespace gannet::kit {

struct PieceMemory {
  PieceMemory(const Problem& problem, const CutPiece& cut, const Optimizer& optimizer, bool is_tight);
  // States FROM_PARAMETER, before the first update.
  void copy_first_values(const Optimizer& optimizer, gannet_dtype master);

  const CutPiece* cut;  // outlives it
  Buffer param, grad, out;
  std::vector<Buffer> states;  // those that are cut
  std::vector<gannet_segment> segments;
  int64_t lag = 0;
  std::string names;  // of the tensors in it, for reports
};

}  // namespace gannet::kit
