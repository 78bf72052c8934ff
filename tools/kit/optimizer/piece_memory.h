// A piece's arrays and segments, as passed to the plugin in a simulated run.
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
  // Before the first update: copies the parameters to the states marked FROM_PARAMETER.
  void copy_first_values(const Optimizer& optimizer, gannet_dtype master);

  const CutPiece* cut;  // must outlive this object
  Buffer param, grad, out;
  Buffer second;               // the second gradient, if the optimizer takes one
  std::vector<Buffer> states;  // the cut states
  // Square matrices, [parts][states]: an empty buffer if a tensor has none; no entries if no state
  // consists of square matrices.
  std::vector<Buffer> squares;
  // Calls visit(tensor, state, matrices) for each buffer that is not empty.
  template <class Visit>
  void for_squares(const Visit& visit) const {
    for (size_t i = 0; i < squares.size(); ++i)
      if (squares[i].data()) visit(cut->parts[i / states.size()].tensor, i % states.size(), squares[i]);
  }
  std::vector<gannet_segment> segments;
  int64_t lag = 0;
  std::string names;  // the tensors in it, for reports
};

}  // namespace gannet::kit
