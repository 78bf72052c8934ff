// Trains a small transformer in one way on one accelerator and prints the losses as one line of JSON: a row of the matrix of
// scripts/gpu. Every row is a process of its own, so that a crash loses one row.
//
//   device_rows cuda 3 both bf16 regions            # accelerator, ZeRO stage, tiers, dtype, way
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gannet/gannet.h>
#include <gannet/layers.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "activation/blocks.h"

namespace {

using namespace gannet;
using test::Block;

constexpr int64_t kWidth = 64, kHeads = 4, kBlocks = 3, kSteps = 6;

// `way`: plain, regions, reentrant, layers or operators are kinds of activation checkpointing; stream is a stream of the
// program's.
struct RowNetImpl : torch::nn::Module {
  explicit RowNetImpl(std::string way) : way(std::move(way)) {
    words = register_module("words", torch::nn::Embedding(50, kWidth));
    for (int64_t i = 0; i < kBlocks; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), Block(kWidth, kHeads, 0)));
  }
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& targets) {
    at::Tensor x = words(ids);
    if (way == "layers") {
      std::vector<Layer> layers;
      for (size_t i = 0; i < blocks.size(); ++i) layers.push_back(layer_of("block" + std::to_string(i), blocks[i]));
      x = run_layers(layers, x);
    } else {
      for (const Block& block : blocks) x = through(block, x);
    }
    const at::Tensor logits = torch::matmul(x, words->weight.t());
    return torch::cross_entropy_loss(logits.view({-1, 50}).to(torch::kFloat), targets.reshape({-1}));
  }
  at::Tensor through(const Block& block, const at::Tensor& x) {
    if (way == "regions") return checkpointing::checkpoint({.name = "block"}, block, x);
    if (way == "reentrant") return checkpointing::checkpoint({.name = "block", .use_reentrant = true}, block, x);
    return block.ptr()->forward(x);
  }
  std::string way;
  torch::nn::Embedding words{nullptr};
  std::vector<Block> blocks;
};

Dict config_of(const std::string& accelerator, int64_t stage, const std::string& tiers, const std::string& dtype,
               const std::string& way) {
  Dict zero{{"stage", stage}, {"stage3_param_persistence_threshold", 0}};
  const std::string device = tiers == "nvme" ? "nvme" : "cpu";
  Dict to{{"device", device}};
  if (device == "nvme") to["nvme_path"] = std::getenv("NVME_PATH") ? std::getenv("NVME_PATH") : "/tmp";
  if (tiers != "none") zero["offload_optimizer"] = to;
  if (tiers == "both" || tiers == "nvme") zero["offload_param"] = to;
  Dict config{{"train_micro_batch_size_per_gpu", 4},
              {"gradient_accumulation_steps", 2},
              {"gradient_clipping", 1.0},
              {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-3}, {"weight_decay", 0.01}}}}},
              {"accelerator", Dict{{"type", accelerator}}},
              {"zero_optimization", zero}};
  if (dtype == "bf16") config["bf16"] = Dict{{"enabled", true}};
  if (dtype == "fp16")
    config["fp16"] = Dict{{"enabled", true}, {"initial_scale_power", 20}, {"hysteresis", 1}};  // skips at first
  if (way == "layers") config["activation_checkpointing"] = Dict{{"number_checkpoints", 2}};
  if (way == "operators") config["gannet"] = Dict{{"activation_checkpointing", Dict{{"recompute", List{"gelu"}}}}};
  return config;
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 6) {
    std::cerr << "device_rows ACCELERATOR STAGE none|optimizer|both|nvme fp32|bf16|fp16 "
                 "plain|regions|reentrant|layers|operators|stream\n";
    return 2;
  }
  const std::string accelerator = arguments[1], tiers = arguments[3], dtype = arguments[4], way = arguments[5];
  torch::manual_seed(1);
  const auto net = std::make_shared<RowNetImpl>(way);
  const auto engine = initialize(net, {.config = config_of(accelerator, std::stoll(arguments[2]), tiers, dtype, way)}).engine;
  const at::Device device = engine->device();
  if (way == "stream" && !device.is_cpu()) {
    const c10::impl::VirtualGuardImpl streams(device.type());
    streams.synchronizeDevice(device.index());  // what initialize queued on the other stream is over
    streams.exchangeStream(streams.getStreamFromGlobalPool(device));
  }
  std::string losses;
  int64_t applied = 0;
  for (int64_t micro_batch = 0; micro_batch < 2 * kSteps; ++micro_batch) {
    const auto [ids, targets] = test::words_of(micro_batch * engine->world_size() + engine->rank(), 4, 24);
    const at::Tensor loss = engine->forward(ids.to(device), targets.to(device));
    engine->backward(loss);
    applied += engine->step().applied;
    char text[32];
    std::snprintf(text, sizeof(text), "%s%.9g", micro_batch ? ", " : "", loss.item<double>());
    losses += text;
  }
  double sum = 0;
  int64_t place = 0;
  for (const auto& [name, value] : engine->fp32_parameters())
    sum += value.to(at::kCPU, at::kDouble).norm().item<double>() * static_cast<double>(++place);
  std::printf("{\"losses\": [%s], \"applied\": %lld, \"parameters\": %.9g}\n", losses.c_str(), static_cast<long long>(applied),
              sum);
  return 0;
} catch (const std::exception& error) {
  std::cerr << "device_rows: " << error.what() << std::endl;
  return 1;
}
