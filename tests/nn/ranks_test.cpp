// The transformer layer under an engine: at every ZeRO stage, on one and two ranks, in regions and without.
#include <gannet/checkpointing.h>
#include <gannet/gannet.h>
#include <gannet/nn/transformer_layer.h>
#include <gtest/gtest.h>

#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

struct StackImpl : torch::nn::Module {
  StackImpl(bool is_pre_norm, bool has_regions) : has_regions(has_regions) {
    gannet::nn::TransformerLayerConfig config;
    config.hidden_size = 24, config.heads = 3, config.initializer_range = 0.2;
    config.attn_dropout_ratio = config.hidden_dropout_ratio = 0.1;
    config.pre_layer_norm = is_pre_norm, config.normalize_invertible = !is_pre_norm, config.gelu_checkpoint = is_pre_norm;
    for (int64_t i = 0; i < 3; ++i) {
      config.layer_id = i;
      layers.push_back(register_module("layer" + std::to_string(i), gannet::nn::TransformerLayer(config)));
    }
  }
  at::Tensor forward(at::Tensor x, const at::Tensor& y) {
    x = x.to(layers[0]->norm_w.dtype());
    for (auto& layer : layers)
      x = has_regions ? gannet::checkpointing::checkpoint([layer](const at::Tensor& x) mutable { return layer(x); }, x)
                      : layer(x);
    return torch::mse_loss(x.to(torch::kFloat), y);
  }
  bool has_regions;
  std::vector<gannet::nn::TransformerLayer> layers;
};

at::Tensor trained(const Dict& config, bool is_pre_norm, bool has_regions) {
  torch::manual_seed(1);
  auto engine = gannet::initialize(std::make_shared<StackImpl>(is_pre_norm, has_regions), {.config = config}).engine;
  for (int64_t step = 0; step < 3; ++step) {
    torch::manual_seed(100 + step * engine->world_size() + engine->rank());
    const at::Tensor x = torch::randn({2, 7, 24}), y = torch::randn({2, 7, 24});
    engine->backward(engine->forward(x, y));
    engine->step();
  }
  return parameters_of(*engine);
}

RANK_BODY(layers_at_every_stage) {
  world();
  for (const bool is_pre_norm : {true, false}) {
    const at::Tensor plain = trained(stage3(0), is_pre_norm, false);
    for (const int64_t stage : {0, 1, 2, 3})
      for (const bool has_regions : {false, true})
        expect(difference(trained(stage3(stage), is_pre_norm, has_regions), plain) < 1e-6,
               "stage " + std::to_string(stage) + (has_regions ? ", regions" : ""));
    const at::Tensor bf16 = trained(stage3(3, {}, "bf16"), is_pre_norm, false);
    expect(difference(bf16, plain) < 1e-2, "bf16, stage 3: " + std::to_string(difference(bf16, plain)));
    expect(at::equal(trained(stage3(3), is_pre_norm, true), trained(stage3(3), is_pre_norm, false)), "regions, bit for bit");
  }
}

TEST(TransformerLayerUnderAnEngine, TrainsAtEveryStageOnOneRank) {
  ranks::expect_all_succeed(run_ranks("layers_at_every_stage", 1));
}
TEST(TransformerLayerUnderAnEngine, TrainsAtEveryStageOnTwoRanks) {
  ranks::expect_all_succeed(run_ranks("layers_at_every_stage", 2));
}

}  // namespace
