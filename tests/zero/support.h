// Shared by the tests of ZeRO.
#pragma once

#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "comm/ranks.h"
#include "engine/models.h"

namespace gannet::test {

inline std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

inline std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

inline void contains(const std::string& text, const std::string& part) {
  ranks::expect(text.find(part) != std::string::npos, "'" + part + "' in: " + text);
}

inline auto world() { return init_distributed({.timeout_seconds = 60}); }

// The masters of the whole model, from every rank; every rank calls it.
inline at::Tensor parameters_of(EngineBase& engine) {
  std::vector<at::Tensor> parts;
  for (const auto& [name, master] : engine.fp32_parameters()) parts.push_back(master.flatten().clone());
  return torch::cat(parts);
}

// Relative difference of two models, by their 2-norms.
inline double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(torch::kDouble) - b.to(torch::kDouble)).norm() / b.to(torch::kDouble).norm()).item<double>();
}

// Stage 3 with nothing that stays whole and nothing that is kept, or another stage with the same optimizer.
inline Dict stage3(int64_t stage = 3, const Dict& zero = {}, const std::string& dtype = "fp32") {
  Dict config = config_with({{"gradient_clipping", 0.5}});
  config["optimizer"] = Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-3}, {"eps", 1e-6}}}};
  Dict section{{"stage", stage}};
  if (stage == 3) {
    section["stage3_param_persistence_threshold"] = 0;
    section["stage3_max_reuse_distance"] = 0;
  }
  for (const auto& [key, value] : zero.entries()) section[key] = value;
  config["zero_optimization"] = section;
  if (dtype != "fp32") config[dtype] = Dict{{"enabled", true}};
  return config;
}

template <class Model>
void train(Engine<Model>& engine, int64_t steps, int64_t first = 0) {
  for (int64_t step = first; step < first + steps; ++step) {
    auto [x, y] = make_batch(step * engine.world_size() + engine.rank(), 4);
    engine.backward(engine.forward(x, y));
    engine.step();
  }
}

// Masters, their moving averages and states as a checkpoint has them.
inline std::map<std::string, at::Tensor> tensors_of(const std::string& folder, const std::string& tag) {
  const auto opened = checkpoint::open(folder, {.tag = tag});
  std::map<std::string, at::Tensor> tensors;
  std::vector<checkpoint::Target> targets;
  for (const auto& info : opened.tensors()) {
    if (!info.name.starts_with("parameter/") && !info.name.starts_with("state/") && !info.name.starts_with("average/")) continue;
    at::Tensor tensor = at::empty(info.shape, info.dtype);
    if (tensor.numel() > 0) targets.push_back({info.name, 0, tensor.view({-1})});
    tensors.emplace(info.name, tensor);
  }
  opened.read(targets);
  return tensors;
}

}  // namespace gannet::test
