// gannet.leftover_micro_batches: what becomes of an epoch's last micro-batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/models.h"

namespace {

using gannet::Dict;
using gannet::test::adamw;
using gannet::test::make_net;

std::vector<gannet::Example> samples(int64_t count) {
  std::vector<gannet::Example> made;
  for (int64_t i = 0; i < count; ++i) {
    const auto [x, y] = gannet::test::make_batch(i, 1);
    made.emplace_back(x[0], y[0]);
  }
  return made;
}

Dict config_of(const char* leftover) {
  return Dict{{"train_micro_batch_size_per_gpu", 1},
              {"gradient_accumulation_steps", 4},
              {"optimizer", adamw()},
              {"gannet", Dict{{"shuffle", false}, {"leftover_micro_batches", leftover}}}};
}

TEST(LeftoverMicroBatches, AreCarriedUnlessAskedOtherwise) {
  auto [engine, optimizer, loader, scheduler] =
      gannet::initialize(make_net(), {.config = config_of("carry"), .training_data = samples(6)});
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& batch : *loader) {
      engine->backward(engine->forward(batch.data, batch.target));
      engine->step();
    }
  EXPECT_EQ(engine->global_steps(), 3);
}

TEST(LeftoverMicroBatches, AsAStepAreRefusedOutsideTheTrainer) {
  EXPECT_THROW(gannet::initialize(make_net(), {.config = config_of("step"), .training_data = samples(6)}), gannet::Error);
}

}  // namespace
