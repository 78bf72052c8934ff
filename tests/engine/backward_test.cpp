// run_backward: any number of outputs, with their gradients given; what a stage of a pipeline calls, and what is under
// backward().
#include "engine/backward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "models.h"

namespace gannet::test {
namespace {

// Two outputs of one trunk, as a stage that hands on its activations and a residual.
struct StageImpl : torch::nn::Module {
  StageImpl() {
    trunk = register_module("trunk", torch::nn::Linear(8, 16));
    wide = register_module("wide", torch::nn::Linear(16, 6));
    narrow = register_module("narrow", torch::nn::Linear(16, 3));
  }
  std::vector<at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor h = torch::tanh(trunk(x));
    return {wide(h), narrow(h)};
  }
  torch::nn::Linear trunk{nullptr}, wide{nullptr}, narrow{nullptr};
};

std::shared_ptr<StageImpl> make_stage() {
  torch::manual_seed(3);
  return std::make_shared<StageImpl>();
}

std::vector<at::Tensor> given(int64_t index) {  // as they come from the next stage
  torch::manual_seed(100 + index);
  return {torch::randn({4, 6}), torch::randn({4, 3})};
}

TEST(RunBackward, TwoOutputsWithTheirGradientsGiveWhatAutogradGives) {
  auto plain = make_stage(), stage = make_stage();
  const auto engine = std::make_shared<Engine<StageImpl>>(
      stage, EngineOptions{.config = config_with({{"gradient_accumulation_steps", 2}, {"gradient_clipping", 0.0}})});
  auto& impl = engine->impl();
  for (int64_t micro = 0; micro < 2; ++micro) {
    const at::Tensor x = make_batch(micro, 4).first;
    torch::autograd::backward(plain->forward(x), given(micro));
    const auto outputs = engine->forward(x);
    run_backward(impl, outputs, given(micro), {.reduce = micro == 1});
    EXPECT_EQ(impl.progress.state(), Progress::State::kBackwarded);
    if (micro == 0) EXPECT_FALSE(engine->step().boundary);
  }
  for (const auto& entry : plain->named_parameters())
    EXPECT_TRUE(torch::equal(engine->full_gradient(entry.key()), entry.value().grad())) << entry.key();
  EXPECT_TRUE(engine->step().applied);
  EXPECT_EQ(engine->global_steps(), 1);
}

TEST(RunBackward, AnOutputOfOneElementNeedsNoGradient) {
  auto plain = make_stage(), stage = make_stage();
  const auto engine = std::make_shared<Engine<StageImpl>>(stage, EngineOptions{.config = config_with({})});
  const at::Tensor x = make_batch(0, 4).first;
  const auto ours = engine->forward(x), theirs = plain->forward(x);
  torch::autograd::backward({theirs[0].sum(), theirs[1]}, {at::Tensor(), given(0)[1]});
  run_backward(engine->impl(), {ours[0].sum(), ours[1]}, {at::Tensor(), given(0)[1]}, {.reduce = true});
  for (const auto& entry : plain->named_parameters())
    EXPECT_TRUE(torch::equal(engine->full_gradient(entry.key()), entry.value().grad())) << entry.key();
}

TEST(RunBackward, IsUnderBackwardOfALoss) {
  auto one = make_net(), two = make_net();
  auto engine_of = [](const std::shared_ptr<NetImpl>& net) {
    return std::make_shared<Engine<NetImpl>>(net, EngineOptions{.config = config_with({{"gradient_accumulation_steps", 2}})});
  };
  const auto by_loss = engine_of(one), by_output = engine_of(two);
  const auto [x, y] = make_batch(0, 4);
  by_loss->backward(by_loss->forward(x, y));
  const at::Tensor loss = by_output->forward(x, y);
  run_backward(by_output->impl(), {loss}, {torch::full({}, 0.5)}, {});
  for (auto* engine : {by_loss.get(), by_output.get()}) EXPECT_FALSE(engine->step().boundary);
  for (auto* engine : {by_loss.get(), by_output.get()}) {
    engine->backward(engine->forward(x, y));
    EXPECT_TRUE(engine->step().applied);
  }
  EXPECT_TRUE(torch::equal(flat_parameters(*one), flat_parameters(*two)));
}

// The program catches the error and trains on: the next loss is judged by itself.
TEST(ScaledLoss, AFiniteOneTrainsAfterOneThatIsNotFinite) {
  const auto net = make_net();
  const auto engine = initialize(net, {.config = config_with({})}).engine;
  const auto [x, y] = make_batch(0, 4);
  EXPECT_THROW(engine->scale(engine->forward(x, y) * std::numeric_limits<double>::infinity()).backward(), Error);
  engine->scale(engine->forward(x, y)).backward();
  EXPECT_TRUE(engine->step().applied);
}

TEST(RunBackward, AGradientForEachOutput) {
  const auto engine = std::make_shared<Engine<StageImpl>>(make_stage(), EngineOptions{.config = config_with({})});
  const auto outputs = engine->forward(make_batch(0, 4).first);
  EXPECT_THROW(run_backward(engine->impl(), outputs, {given(0)[0]}, {}), Error);
}

}  // namespace
}  // namespace gannet::test
