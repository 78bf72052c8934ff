// The effects of a step: the operands it writes into, the operands whose memory its results may
// share, and whether it draws random numbers.
#pragma once

#include <cstddef>
#include <vector>

#include "program.h"

namespace gannet::exported {

struct StepFacts {
  std::vector<size_t> reads;   // slots, each once
  std::vector<size_t> writes;  // slots
  std::vector<size_t> shares;  // slots whose memory the results may share
  bool is_random = false;
  bool has_effect = false;  // runs even if its results are unused: a check of sizes
};

// `is_buffer`: by slot of the step's graph. Operators that update running statistics write into
// buffers, which their schemas do not declare.
StepFacts facts_of(const Program& program, const Step& step, const std::vector<bool>& is_buffer);

}  // namespace gannet::exported
