// AdamW8bit on a small GPT-2 of the example, with the quickstart's optimizer params: 500 steps end no higher than AdamW's, and so
// do those of a run that changes from one to the other and back. bench/README.md has the quickstart's own model.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include "data.h"
#include "engine/models.h"
#include "model.h"

namespace gannet::test {
namespace {

constexpr int64_t kSteps = 500, kBatch = 4, kLength = 32;
const Dict kParams{{"lr", 4e-3}, {"betas", List{0.9, 0.95}}, {"weight_decay", 0.1}};

// The mean loss of the last tenth of a run that begins with `type` and is swapped at the steps given.
double train(const std::string& type, const std::map<int64_t, std::string>& swaps = {}) {
  torch::manual_seed(3);
  auto model = std::make_shared<gpt2::GptImpl>(
      gpt2::GptOptions{.vocabulary = 256, .positions = kLength, .width = 64, .layers = 2, .heads = 2, .initializer_range = 0.06});
  Dict config = config_with({{"gradient_clipping", 1.0}});
  config["optimizer"] = Dict{{"type", type}, {"params", kParams}};
  auto engine = gannet::initialize(model, {.config = config}).engine;
  const auto tokens = gpt2::Tokens::from_this_machine();
  double last = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    if (const auto swap = swaps.find(step); swap != swaps.end()) engine->swap_optimizer(swap->second, kParams);
    const auto batch = tokens.batch(step * kBatch, kBatch, kLength);
    const at::Tensor loss = engine->forward(batch.inputs, batch.targets);
    engine->backward(loss);
    engine->step();
    if (step >= kSteps - kSteps / 10) last += loss.item<double>() / (kSteps / 10);
  }
  return last;
}

TEST(Adam8bitOnGpt2, EndsWhereAdamWDoesAlsoAfterASwapAndBack) {
  const double full = train("AdamW"), small = train("AdamW8bit");
  const double swapped = train("AdamW8bit", {{200, "AdamW"}, {300, "AdamW8bit"}});
  std::printf("after %d steps: AdamW %.4f, AdamW8bit %.4f, swapped for AdamW and back %.4f\n", static_cast<int>(kSteps), full,
              small, swapped);
  EXPECT_LT(full, 3.0) << "it learns";
  // Rounding differences let runs of this size end 3% apart.
  EXPECT_LT(small, 1.05 * full);
  EXPECT_LT(swapped, 1.05 * full);
}

}  // namespace
}  // namespace gannet::test
