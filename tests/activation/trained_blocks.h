// A transformer under an engine, trained for a few steps on each rank's own words: with a feature and without it, the parameters
// are the same bits.
#pragma once

#include <gannet/gannet.h>

#include "activation/blocks.h"
#include "zero/support.h"

namespace gannet::test {

struct TrainedBlocks {
  int64_t blocks, width, samples, words, steps;

  auto engine_of(const Dict& config, Recompute recompute = Recompute::kNothing, double dropout = 0.1) const {
    return gannet::initialize(make_transformer(recompute, blocks, width, 4, dropout), {.config = config}).engine;
  }
  template <class Model>
  void train(Engine<Model>& engine, int64_t count) const {
    torch::manual_seed(10 + engine.rank());
    for (int64_t step = 0; step < count; ++step) {
      auto [ids, targets] = words_of(step * engine.world_size() + engine.rank(), samples, words);
      engine.backward(engine.forward(ids, targets));
      engine.step();
    }
  }
  at::Tensor trained(const Dict& config, Recompute recompute = Recompute::kNothing) const {
    const auto engine = engine_of(config, recompute);
    train(*engine, steps);
    return parameters_of(*engine);
  }
};

}  // namespace gannet::test
