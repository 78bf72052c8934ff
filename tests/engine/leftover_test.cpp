// gannet.leftover_micro_batches = step: an epoch's last step has the micro-batches that are left.
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

TEST(LeftoverMicroBatches, AsAStepAreDividedByTheirOwnNumber) {
  const auto data = samples(6);
  auto net = make_net(), plain = make_net();
  auto [engine, optimizer, loader, scheduler] = gannet::initialize(net, {.config = config_of("step"), .training_data = data});
  torch::optim::AdamW reference(plain->parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
  std::vector<int64_t> boundaries;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      engine->backward(engine->forward(batch.data, batch.target));
      if (engine->step().boundary) boundaries.push_back(engine->micro_steps());
    }
    for (const auto& [begin, end] : {std::pair{0, 4}, {4, 6}}) {
      reference.zero_grad();
      for (int i = begin; i < end; ++i)
        (plain->forward(data[i].data.unsqueeze(0), data[i].target.unsqueeze(0)) / (end - begin)).backward();
      reference.step();
    }
  }
  EXPECT_THAT(boundaries, testing::ElementsAre(4, 6, 10, 12));
  for (size_t i = 0; i < plain->parameters().size(); ++i)
    EXPECT_LT((net->parameters()[i] - plain->parameters()[i]).abs().max().item<double>(), 1e-6);
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

TEST(LeftoverMicroBatches, OfAStreamCannotBeAStep) {
  const gannet::Dataset<> stream = []() -> std::optional<gannet::Example> { return std::nullopt; };
  EXPECT_THROW(gannet::initialize(make_net(), {.config = config_of("step"), .training_data = stream}), gannet::Error);
}

}  // namespace
