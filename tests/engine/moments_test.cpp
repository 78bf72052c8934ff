// Calls of the engine at moments that are not theirs: within a backward, and in the backward of two engines at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "models.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

using NetEngine = std::shared_ptr<Engine<NetImpl>>;

void train(const NetEngine& engine, int64_t first, int64_t steps) {
  for (int64_t i = first; i < first + steps; ++i) {
    const auto [x, y] = make_batch(i, 4);
    engine->backward(engine->forward(x, y));
    engine->step();
  }
}

// A tensor hook that the program registers runs within the backward, and may throw what the engine says to it.
TEST(Moments, WithinABackwardOtherCallsAreRefused) {
  const std::string folder = ::testing::TempDir() + "moments_within";
  std::filesystem::remove_all(folder);
  const auto [x, y] = make_batch(0, 4);
  const std::vector<std::pair<std::string, std::function<void(const NetEngine&)>>> calls = {
      {"zero_grad", [](const NetEngine& e) { e->zero_grad(); }},
      {"forward", [&](const NetEngine& e) { e->forward(x, y); }},
      {"step", [](const NetEngine& e) { e->step(); }},
      {"save_checkpoint", [&](const NetEngine& e) { e->save_checkpoint(folder); }},
      {"load_checkpoint", [&](const NetEngine& e) { e->load_checkpoint(folder, {.if_present = true}); }},
      {"set_full_fp32_parameter", [](const NetEngine& e) { e->set_full_fp32_parameter("second.bias", torch::zeros({4})); }},
  };
  for (const bool is_scaled : {false, true})
    for (const auto& [name, call] : calls) {
      const std::string told = name + "() was called within a backward of this engine";
      const auto engine = initialize(make_net(), {.config = config_with({})}).engine;
      const auto other = initialize(make_net(), {.config = config_with({})}).engine;
      const auto backward = [&](const at::Tensor& loss) { is_scaled ? engine->scale(loss).backward() : engine->backward(loss); };
      const auto hooked = [&](bool is_caught, std::string& said) {
        const at::Tensor loss = engine->forward(x, y);
        const auto hook = engine->module()->second->bias.register_hook([&, is_caught](at::Tensor grad) {
          said = message_of([&, call = call] { call(engine); });
          if (!is_caught && !said.empty()) throw std::runtime_error(said);
          return grad;
        });
        const std::string thrown = message_of([&] { backward(loss); });
        engine->module()->second->bias.remove_hook(hook);
        return thrown;
      };
      std::string said;
      EXPECT_EQ(hooked(/*is_caught=*/true, said), "") << name;
      EXPECT_THAT(said, HasSubstr(told));
      EXPECT_TRUE(engine->step().applied) << name;
      const auto [x0, y0] = make_batch(0, 4);
      other->backward(other->forward(x0, y0));
      other->step();
      EXPECT_TRUE(torch::equal(flat_parameters(*engine->module()), flat_parameters(*other->module())))
          << name << ": a hook that catches it has changed nothing";
      EXPECT_THAT(hooked(/*is_caught=*/false, said), HasSubstr(told));
      train(engine, 1, 2);
      train(other, 1, 2);
      EXPECT_TRUE(torch::equal(flat_parameters(*engine->module()), flat_parameters(*other->module())))
          << name << ": one that does not ends that micro-batch";
    }
}

TEST(Moments, OneBackwardThroughTheScaledLossesOfTwoEngines) {
  const auto train_both = [](bool with_engines, bool one_backward) {
    auto a = make_net(1), b = make_net(2);
    Dict config = config_with({{"gradient_clipping", 0.0}, {"optimizer", Dict{{"type", "SGD"}, {"params", Dict{{"lr", 0.1}}}}}});
    NetEngine engines[2];
    std::unique_ptr<torch::optim::SGD> plain;
    if (with_engines) {
      engines[0] = initialize(a, {.config = config}).engine;
      engines[1] = initialize(b, {.config = config}).engine;
    } else {
      auto parameters = a->parameters();
      for (const auto& parameter : b->parameters()) parameters.push_back(parameter);
      plain = std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1));
    }
    for (int64_t i = 0; i < 3; ++i) {
      const auto [x, y] = make_batch(i, 4);
      if (with_engines) {
        const at::Tensor of_a = engines[0]->forward(x, y), of_b = engines[1]->forward(x, y);
        const at::Tensor scaled_a = engines[0]->scale(of_a), scaled_b = engines[1]->scale(of_b);
        if (one_backward) {
          (scaled_a + scaled_b).backward();
        } else {
          scaled_a.backward();
          scaled_b.backward();
        }
        for (const auto& engine : engines) EXPECT_TRUE(engine->step().applied);
      } else {
        plain->zero_grad();
        (a->forward(x, y) + b->forward(x, y)).backward();
        plain->step();
      }
    }
    return torch::cat({flat_parameters(*a), flat_parameters(*b)});
  };
  const at::Tensor expected = train_both(false, true);
  EXPECT_TRUE(torch::allclose(train_both(true, true), expected, 1e-6, 1e-7));
  EXPECT_TRUE(torch::allclose(train_both(true, false), expected, 1e-6, 1e-7));
}

// `.grad` between backward and step shows a mark, whose memory the program can exchange without putting another tensor there.
TEST(Moments, OtherMemoryUnderTheShownGradientIsNamed) {
  const auto engine = initialize(make_net(), {.config = config_with({})}).engine;
  const auto other = initialize(make_net(), {.config = config_with({})}).engine;
  const auto [x, y] = make_batch(0, 4);
  engine->backward(engine->forward(x, y));
  engine->module()->second->bias.mutable_grad().set_data(torch::ones({4}));
  EXPECT_THAT(message_of([&] { engine->step(); }), HasSubstr("found a gradient in `.grad` of 'second.bias'"));
  engine->zero_grad();
  train(engine, 0, 2);
  train(other, 0, 2);
  EXPECT_TRUE(torch::equal(flat_parameters(*engine->module()), flat_parameters(*other->module())));
  engine->backward(engine->forward(x, y));
  EXPECT_THAT(message_of([&] { engine->module()->second->bias.grad().sum(); }), HasSubstr("`.grad` of 'second.bias' was read"))
      << "the next one is a mark again";
}

TEST(Moments, InitializeUnderInferenceModeSaysSo) {
  auto net = make_net();
  const c10::InferenceMode inference;
  EXPECT_THAT(message_of([&] { initialize(net, {.config = config_with({})}); }),
              HasSubstr("initialize was called under c10::InferenceMode"));
}

}  // namespace
}  // namespace gannet::test
