// The model that the engine benchmarks use: a GPT with 29.5 million parameters.
#pragma once

#include "model.h"

namespace gannet::bench {

inline gpt2::GptOptions gpt_of_30m() {
  gpt2::GptOptions size;
  size.vocabulary = 8192;
  size.width = 512;
  size.layers = 8;
  size.heads = 8;
  return size;
}

}  // namespace gannet::bench
