// What a step does besides computing: which operands it writes into, which of them its results may share memory with, and
// whether it draws random numbers.
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
  bool has_effect = false;  // runs though nothing uses its results: a check of sizes
};

// `is_buffer`: by slot of the step's graph. Operators that update running statistics write into the buffers they are given,
// which their schemas do not say.
StepFacts facts_of(const Program& program, const Step& step, const std::vector<bool>& is_buffer);

}  // namespace gannet::exported
