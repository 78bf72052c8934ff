// LibTorch's five element-wise optimizers at several options, and what they give without an engine.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "zero/support.h"
#include "zero/uneven.h"

namespace gannet::test {

using MakeTorchOptimizer = std::function<std::shared_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

struct TorchCase {
  std::string name;
  MakeTorchOptimizer make;
  std::vector<std::string> states;  // that a checkpoint has of each parameter
};

template <class Class, class Options>
TorchCase torch_case(std::string name, Options options, std::vector<std::string> states) {
  return {std::move(name),
          [options](std::vector<at::Tensor> parameters) { return std::make_shared<Class>(std::move(parameters), options); },
          std::move(states)};
}

inline std::vector<TorchCase> torch_cases() {
  namespace optim = torch::optim;
  using optim::SGDOptions, optim::AdamOptions, optim::AdamWOptions, optim::AdagradOptions, optim::RMSpropOptions;
  return {
      torch_case<optim::SGD>("SGD", SGDOptions(0.05), {}),
      torch_case<optim::SGD>("SGD-momentum", SGDOptions(0.05).momentum(0.9), {"momentum_buffer"}),
      torch_case<optim::SGD>("SGD-dampening", SGDOptions(0.05).momentum(0.9).dampening(0.5).weight_decay(0.1),
                             {"momentum_buffer"}),
      torch_case<optim::SGD>("SGD-nesterov", SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(0.1),
                             {"momentum_buffer"}),
      torch_case<optim::Adam>("Adam", AdamOptions(1e-2), {"exp_avg", "exp_avg_sq"}),
      torch_case<optim::Adam>("Adam-amsgrad", AdamOptions(1e-2).betas({0.8, 0.95}).eps(1e-6).weight_decay(0.1).amsgrad(true),
                              {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
      torch_case<optim::AdamW>("AdamW", AdamWOptions(1e-2).weight_decay(0.1), {"exp_avg", "exp_avg_sq"}),
      torch_case<optim::AdamW>("AdamW-amsgrad", AdamWOptions(1e-2).amsgrad(true), {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
      torch_case<optim::Adagrad>("Adagrad", AdagradOptions(0.05), {"sum"}),
      torch_case<optim::Adagrad>("Adagrad-decay",
                                 AdagradOptions(0.05).lr_decay(0.1).weight_decay(0.1).initial_accumulator_value(0.5), {"sum"}),
      torch_case<optim::RMSprop>("RMSprop", RMSpropOptions(1e-3), {"square_avg"}),
      torch_case<optim::RMSprop>("RMSprop-centered", RMSpropOptions(1e-3).momentum(0.9).centered(true).weight_decay(0.1),
                                 {"grad_avg", "momentum_buffer", "square_avg"}),
  };
}

inline const TorchCase& torch_case_called(const std::string& name) {
  static const std::vector<TorchCase> cases = torch_cases();
  for (const auto& one : cases)
    if (one.name == name) return one;
  throw std::runtime_error("no case is called " + name);
}

// One after another by their names: an engine has them in the order of its ranges.
inline at::Tensor by_name(std::vector<std::pair<std::string, at::Tensor>> values) {
  std::sort(values.begin(), values.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<at::Tensor> parts;
  for (const auto& [name, value] : values) parts.push_back(value.detach().flatten().clone());
  return torch::cat(parts);
}
inline at::Tensor parameters_by_name(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> values;
  for (const auto& entry : module.named_parameters()) values.emplace_back(entry.key(), entry.value());
  return by_name(std::move(values));
}

// The module and its optimizer without an engine. Every sample is the same on every rank, so that their mean is each of them.
struct PlainTorch {
  std::shared_ptr<UnevenImpl> net = make_uneven();
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  explicit PlainTorch(const MakeTorchOptimizer& make) : optimizer(make(net->parameters())) {}
  void step(int64_t index) {
    optimizer->zero_grad();
    auto [x, y] = make_batch(index, 4);
    net->forward(x, y).backward();
    optimizer->step();
  }
  void train(int64_t first, int64_t steps) {
    for (int64_t i = first; i < first + steps; ++i) step(i);
  }
  at::Tensor parameters() const { return parameters_by_name(*net); }
};

inline void expect_same(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
  ranks::expect(torch::equal(found, expected), what + " is off by " + std::to_string(difference(found, expected) * 1e9) + "e-9");
}

struct Layout {
  int64_t stage;
  std::string tier = "none";
  std::string text() const { return " at stage " + std::to_string(stage) + " on " + tier; }
};

// Buckets smaller than the model, several pages, and parameters that are gathered beside some that stay whole.
inline Dict torch_config(const Layout& layout, const std::string& dtype = "fp32") {
  Dict zero{
      {"stage", layout.stage}, {"reduce_bucket_size", 400}, {"sub_group_size", 4096}, {"stage3_param_persistence_threshold", 40}};
  if (layout.tier != "none") {
    Dict offload{{"device", layout.tier}};
    if (layout.tier == "nvme") offload["nvme_path"] = variable("FOLDER");
    zero["offload_optimizer"] = offload;
  }
  Dict config = config_with({{"zero_optimization", zero}, {"gradient_clipping", 0.0}});
  config.erase("optimizer");
  if (dtype == "fp16") config["fp16"] = Dict{{"enabled", true}, {"loss_scale", 1024}};
  if (dtype == "bf16") config["bf16"] = Dict{{"enabled", true}};
  return config;
}

struct EngineTorch {
  std::shared_ptr<UnevenImpl> net = make_uneven();
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  std::shared_ptr<gannet::Engine<UnevenImpl>> engine;
  EngineTorch(const MakeTorchOptimizer& make, Dict config, LrSchedule schedule = {})
      : EngineTorch(make_uneven(), make, std::move(config), std::move(schedule)) {}
  EngineTorch(std::shared_ptr<UnevenImpl> model, const MakeTorchOptimizer& make, Dict config, LrSchedule schedule = {})
      : net(std::move(model)), optimizer(make(net->parameters())) {
    engine = gannet::initialize(net, {.config = std::move(config), .optimizer = optimizer, .lr_scheduler = std::move(schedule)})
                 .engine;
  }
  void step(int64_t index) {
    auto [x, y] = make_batch(index, 4);
    engine->backward(engine->forward(x, y));
    engine->step();
  }
  void train(int64_t first, int64_t steps) {
    for (int64_t i = first; i < first + steps; ++i) step(i);
  }
  at::Tensor parameters() const { return by_name(engine->fp32_parameters()); }
};

}  // namespace gannet::test
