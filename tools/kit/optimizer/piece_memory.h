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
  Buffer second;                // the second gradient, where the optimizer takes some
  std::vector<Buffer> states;   // those that are cut
  std::vector<Buffer> squares;  // [parts][states], empty where a tensor has none; none at all where no state is a square
  // visit(tensor, state, square) of those that are there.
  template <class Visit>
  void for_squares(const Visit& visit) const {
    for (size_t i = 0; i < squares.size(); ++i)
      if (squares[i].data()) visit(cut->parts[i / states.size()].tensor, i % states.size(), squares[i]);
  }
  std::vector<gannet_segment> segments;
  int64_t lag = 0;
  std::string names;  // of the tensors in it, for reports
};

}  // namespace gannet::kit
