// Backward on a separate thread, as autograd runs it on a device: LibTorch carries its thread-local
// state over, but counters outside that state stay behind. Parameters that are gathered on demand
// must also reach that thread when blocks are recomputed.
#include <gannet/checkpointing.h>
#include <gannet/layers.h>
#include <gtest/gtest.h>

#include "accelerators/apart.h"
#include "engine/models.h"

namespace gannet::test {
namespace {

enum class Recomputes { kNothing, kRegion, kReentrantRegion, kLayers, kOperators };

struct ApartNetImpl : torch::nn::Module {
  ApartNetImpl(Recomputes recomputes, bool on_thread) : recomputes(recomputes), on_thread(on_thread) {
    a = register_module("a", torch::nn::Linear(8, 16));
    b = register_module("b", torch::nn::Linear(16, 16));
    c = register_module("c", torch::nn::Linear(16, 16));
    d = register_module("d", torch::nn::Linear(16, 4));
  }
  at::Tensor block(const at::Tensor& y) {
    const auto inner = [this](const at::Tensor& z) { return c(torch::gelu(b(z))); };
    if (recomputes == Recomputes::kRegion) return checkpointing::checkpoint(inner, y);
    if (recomputes == Recomputes::kReentrantRegion) return checkpointing::checkpoint({.use_reentrant = true}, inner, y);
    if (recomputes != Recomputes::kLayers) return inner(y);
    return run_layers({layer_of("b", b), function("gelu", {}, [](at::Tensor z) { return torch::gelu(z); }), layer_of("c", c)}, y);
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor h = Apart::apply(torch::tanh(a(x)), Block([this](const at::Tensor& z) { return block(z); }), on_thread);
    return torch::mse_loss(d(h), y);
  }
  Recomputes recomputes;
  bool on_thread;
  torch::nn::Linear a{nullptr}, b{nullptr}, c{nullptr}, d{nullptr};
};

std::vector<float> losses_of(Recomputes recomputes, bool on_thread, const Dict& tiers) {
  Dict zero{{"stage", 3}, {"stage3_param_persistence_threshold", 0}};
  for (const auto& [key, value] : tiers.entries()) zero[key] = value;
  Dict config = config_with({{"zero_optimization", zero}});
  config["accelerator"] = Dict{{"type", "fake"}};
  if (recomputes == Recomputes::kLayers) config["activation_checkpointing"] = Dict{{"number_checkpoints", 2}};
  if (recomputes == Recomputes::kOperators)
    config["gannet"] = Dict{{"activation_checkpointing", Dict{{"recompute", List{"gelu"}}}}};
  torch::manual_seed(1);
  const auto engine = initialize(std::make_shared<ApartNetImpl>(recomputes, on_thread), {.config = config}).engine;
  std::vector<float> losses;
  for (int64_t step = 0; step < 4; ++step) {
    const auto [x, y] = make_batch(step, 4);
    const at::Tensor loss = engine->forward(x, y);
    losses.push_back(loss.item<float>());
    engine->backward(loss);
    EXPECT_TRUE(engine->step().applied);
  }
  return losses;
}

TEST(DeviceThread, ParametersComeToABackwardOnAThreadOfItsOwnWhateverIsRecomputed) {
  const Dict cpu{{"device", "cpu"}};
  for (const Dict& tiers : {Dict{}, Dict{{"offload_optimizer", cpu}, {"offload_param", cpu}}}) {
    const std::vector<float> expected = losses_of(Recomputes::kNothing, false, tiers);
    for (const auto recomputes :
         {Recomputes::kNothing, Recomputes::kRegion, Recomputes::kReentrantRegion, Recomputes::kLayers, Recomputes::kOperators})
      for (const bool on_thread : {false, true})
        EXPECT_EQ(losses_of(recomputes, on_thread, tiers), expected)
            << static_cast<int>(recomputes) << (on_thread ? " on a thread" : "")
            << (!tiers.entries().empty() ? ", offloaded" : "");
  }
}

}  // namespace
}  // namespace gannet::test
