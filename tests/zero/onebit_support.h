// Shared by the tests of the 1-bit optimizers.
#pragma once

#include <map>
#include <string>

#include "checkpoint/checkpoint.h"
#include "zero/support.h"
#include "zero/uneven.h"

namespace gannet::test {

inline constexpr int64_t kFreezeStep = 3;

// Buckets of 400 elements: tensors that share one with others, and tensors that ranks serve in
// parts.
inline Dict config_of(bool bf16 = false, const Dict& params = {}, double clipping = 0.05,
                      const std::string& type = "OneBitAdam") {
  Dict config = config_with({{"zero_optimization", Dict{{"stage", 0}, {"reduce_bucket_size", 400}}},
                             {"gradient_accumulation_steps", 2},
                             {"gradient_clipping", clipping},
                             {"communication_data_type", "fp32"}});
  Dict all{{"lr", 1e-3}, {"freeze_step", kFreezeStep}, {"weight_decay", 0.1}};
  for (const auto& [key, value] : params.entries()) all[key] = value;
  config["optimizer"] = Dict{{"type", type}, {"params", all}};
  if (bf16) config["bf16"] = Dict{{"enabled", true}};
  return config;
}

inline auto batch_of(int64_t step, int64_t micro, int64_t rank, int64_t ranks) {
  return make_batch((step * 2 + micro) * ranks + rank, 4);
}

template <class Model>
void train_accumulated(gannet::Engine<Model>& engine, int64_t steps) {
  for (int64_t s = 0; s < steps; ++s) {
    const int64_t step = engine.global_steps();
    for (int64_t micro = 0; micro < 2; ++micro) {
      auto [x, y] = batch_of(step, micro, engine.rank(), engine.world_size());
      engine.backward(engine.forward(x, y));
      engine.step();
    }
  }
}

// This rank's own masters, flat.
inline at::Tensor own_masters(EngineBase& engine) {
  std::vector<at::Tensor> parts;
  for (const auto& name : engine.parameter_names()) parts.push_back(engine.local_fp32_parameter(name).values.flatten().clone());
  return torch::cat(parts);
}

// One rank's overflow is everyone's: trains `before` steps in fp16, skips one because of rank 1, and takes `after` more. `check`
// is called before the skipped one.
template <class Check>
auto skip_one_step(Dict config, int64_t before, int64_t after, const Check& check) {
  config["fp16"] = Dict{{"enabled", true}, {"initial_scale_power", 8}};
  config["gradient_accumulation_steps"] = 1;
  auto engine = gannet::initialize(make_net(), {.config = config}).engine;
  const auto step = [&](double factor) {
    auto [x, y] = make_batch(engine->global_steps() * engine->world_size() + engine->rank(), 4);
    engine->backward(engine->forward(x, y) * factor);
    return engine->step();
  };
  for (int64_t s = 0; s < before; ++s) ranks::expect(step(1.0).applied, "a step");
  check(*engine);
  const at::Tensor expected = own_masters(*engine);
  const auto result = step(engine->rank() == 1 ? 1e6 : 1.0);
  ranks::expect(!result.applied, "the step is skipped on rank " + std::to_string(engine->rank()));
  contains(result.reason, "the gradient of '");
  ranks::expect(torch::equal(own_masters(*engine), expected), "nothing has changed");
  for (int64_t s = 0; s < after; ++s) ranks::expect(step(1.0).applied, "the next ones");
  return engine;
}

// Tensors of a checkpoint, each rank's own among them, by name.
inline std::map<std::string, at::Tensor> all_of(const std::string& folder, const std::string& tag) {
  const auto opened = gannet::checkpoint::open(folder, {.tag = tag});
  std::map<std::string, at::Tensor> tensors;
  std::vector<gannet::checkpoint::Target> targets;
  for (const auto& info : opened.tensors()) {
    at::Tensor tensor = at::empty(info.shape, info.dtype);
    if (tensor.numel() > 0) targets.push_back({info.name, 0, tensor.view({-1})});
    tensors.emplace(info.name, tensor);
  }
  opened.read(targets);
  return tensors;
}

}  // namespace gannet::test
