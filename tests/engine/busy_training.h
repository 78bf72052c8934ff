// A training whose every part a checkpoint must bring back, and a folder for its checkpoints.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models.h"

namespace gannet::test {

// A model with all that a resume must bring back: dropout draws random numbers, batch norm has buffers.
struct BusyImpl : torch::nn::Module {
  BusyImpl() {
    first = register_module("first", torch::nn::Linear(8, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    dropout = register_module("dropout", torch::nn::Dropout(0.3));
    second = register_module("second", torch::nn::Linear(16, 4));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    // The statistics are fp32, and beside them nothing may be 16-bit.
    const at::Tensor normal =
        torch::batch_norm(first(x.to(first->weight.dtype())).to(torch::kFloat), norm->weight.to(torch::kFloat),
                          norm->bias.to(torch::kFloat), norm->running_mean, norm->running_var, is_training(), 0.1, 1e-5, false);
    const at::Tensor hidden = normal.to(first->weight.dtype());
    return torch::mse_loss(second(dropout(hidden)).to(torch::kFloat), y.to(torch::kFloat));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() : folder_(std::filesystem::temp_directory_path() / ("gannet_checkpoint_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(folder_);
  }
  ~Checkpoint() override { std::filesystem::remove_all(folder_); }
  std::string folder() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

struct Training {
  std::shared_ptr<BusyImpl> model;
  std::shared_ptr<Engine<BusyImpl>> engine;
  std::vector<double> losses;

  // `seed`: what a fresh start draws from; a resume must not depend on it.
  explicit Training(const Dict& config, uint64_t seed = 1) {
    torch::manual_seed(seed);
    model = std::make_shared<BusyImpl>();
    engine = initialize(model, {.config = config}).engine;
  }
  void train(int64_t until, int64_t poisoned = -1) {
    for (int64_t step = engine->global_steps(); step < until; ++step) {
      for (int64_t a = 0; a < engine->gradient_accumulation_steps(); ++a) {
        auto [x, y] = make_batch(step * engine->gradient_accumulation_steps() + a, 4);
        at::Tensor loss = engine->forward(x, y);
        losses.push_back(loss.item<double>());
        engine->backward(step == poisoned ? loss * 1e30 : loss);
        engine->step();
      }
    }
  }
  // Everything there is: parameters, masters, buffers.
  at::Tensor all() {
    std::vector<at::Tensor> parts = {flat_parameters(*model)};
    for (const auto& [name, master] : engine->fp32_parameters()) parts.push_back(master.flatten().to(torch::kDouble));
    for (const auto& buffer : model->buffers()) parts.push_back(buffer.flatten().to(torch::kDouble));
    return torch::cat(parts);
  }
};

inline Dict busy_config(const std::string& kind, const std::string& optimizer = "AdamW") {
  Dict config = config_with(
      {{"gradient_accumulation_steps", 2},
       {"gradient_clipping", 1.0},
       {"scheduler", Dict{{"type", "OneCycle"},
                          {"params", Dict{{"cycle_min_lr", 1e-3}, {"cycle_max_lr", 1e-2}, {"cycle_first_step_size", 7}}}}}});
  if (optimizer == "SGD") {
    config["optimizer"] = Dict{{"type", "SGD"}, {"params", Dict{{"lr", 1e-2}, {"momentum", 0.9}}}};
    config.erase("scheduler");
  }
  if (kind == "bf16") config["bf16"] = Dict{{"enabled", true}};
  if (kind == "fp16")
    config["fp16"] = Dict{{"enabled", true}, {"initial_scale_power", 8}, {"loss_scale_window", 5}, {"hysteresis", 1}};
  return config;
}

}  // namespace gannet::test
