// A trial of one or two small nets for tests: every part of the interface, with hooks.
#pragma once

#include <gannet/trial.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "launched.h"

namespace trial_test {

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t width, double dropout) : dropout(dropout) {
    inner = register_module("inner", torch::nn::Linear(3, width));
    outer = register_module("outer", torch::nn::Linear(width, 1));
  }
  at::Tensor forward(const at::Tensor& x) {
    return outer(torch::dropout(torch::tanh(inner(x)), dropout, is_training())).squeeze(-1);
  }
  double dropout;
  torch::nn::Linear inner{nullptr}, outer{nullptr};
};
TORCH_MODULE(Net);

// Sample i is a function only of i.
inline std::vector<gannet::Example> samples(int64_t count, int64_t begin = 0) {
  std::vector<gannet::Example> made;
  for (int64_t i = begin; i < begin + count; ++i) {
    const at::Tensor x = torch::sin(torch::arange(3, torch::kFloat) * 1.7 + static_cast<double>(i));
    made.emplace_back(x, x.prod());
  }
  return made;
}

inline gannet::Dict small_config(int64_t micro_batch = 2, int64_t accumulation = 1) {
  return gannet::Dict{{"train_micro_batch_size_per_gpu", micro_batch},
                      {"gradient_accumulation_steps", accumulation},
                      {"optimizer", gannet::Dict{{"type", "AdamW"}, {"params", gannet::Dict{{"lr", 0.01}}}}},
                      {"scheduler", gannet::Dict{{"type", "WarmupLR"},
                                                 {"params", gannet::Dict{{"warmup_max_lr", 0.01}, {"warmup_num_steps", 5}}}}}};
}

inline gannet::Dict small_hparams() {
  return {{"width", 4},
          {"dropout", 0.2},
          {"samples", 12},
          {"nets", 1},
          {"deepspeed_config", small_config()},
          {"overwrite_deepspeed_args", gannet::Dict()}};
}

struct Largest : gannet::MetricReducer {
  void reset() override { largest = -1; }
  gannet::Value per_slot_reduce() override { return largest; }
  gannet::Value cross_slot_reduce(const gannet::List& per_slot) override {
    double most = -1;
    for (const gannet::Value& one : per_slot) most = std::max(most, one.as_number());
    return most;
  }
  gannet::Value save() const override { return largest; }
  void load(const gannet::Value& saved) override { largest = saved.as_number(); }
  double largest = -1;
};

// All ranks share one model, and read the same data.
struct OneModel : gannet::Mpu {
  OneModel(uint32_t rank, uint32_t size) : rank(rank), size(size) {}
  uint32_t get_model_parallel_rank() const override { return rank; }
  uint32_t get_model_parallel_world_size() const override { return size; }
  std::vector<uint32_t> get_model_parallel_group() const override {
    std::vector<uint32_t> all;
    for (uint32_t other = 0; other < size; ++other) all.push_back(other);
    return all;
  }
  uint32_t get_data_parallel_rank() const override { return 0; }
  uint32_t get_data_parallel_world_size() const override { return 1; }
  std::vector<uint32_t> get_data_parallel_group() const override { return {rank}; }
  uint32_t rank, size;
};

// Switches that a test sets, and values that it reads.
struct Hooks {
  std::function<void(gannet::TrialContext&)> on_construct, on_batch;
  std::function<std::optional<gannet::BatchMetrics>(const gannet::Example&, const at::Tensor& loss)> train_metrics;
  std::function<std::optional<gannet::BatchMetrics>(const gannet::Example&, const at::Tensor& loss)> evaluation_metrics;
  std::function<std::shared_ptr<gannet::DataLoader<>>(gannet::TrialContext&)> training_loader, validation_loader;
  int64_t validation_samples = 7;
  std::shared_ptr<const gannet::Mpu> mpu;
  bool wraps = true, steps = true, gives_mpu = true;
};
inline Hooks hooks;

class SmallTrial : public gannet::Trial<> {
 public:
  explicit SmallTrial(gannet::TrialContext& context) : context_(context) {
    const auto& hparams = context.get_hparams();
    if (hooks.mpu) context.wrap_mpu(hooks.mpu);
    for (int64_t i = 0; i < hparams.get<int64_t>("nets"); ++i) {
      Net net(hparams.get<int64_t>("width"), hparams.get<double>("dropout"));
      auto engine =
          gannet::initialize(net, {.config = context.deepspeed_config(), .mpu = hooks.gives_mpu ? hooks.mpu : nullptr}).engine;
      if (hooks.wraps) context.wrap_model_engine(engine, i == 0 ? "" : "critic");
      engines_.push_back(engine);
    }
    largest_ = context.wrap_reducer(std::make_shared<Largest>(), "largest");
    count_ =
        context.wrap_reducer([](const gannet::List& all) -> gannet::Value { return static_cast<int64_t>(all.size()); }, "count");
    if (hooks.on_construct) hooks.on_construct(context);
  }
  Loader build_training_data_loader() override {
    if (hooks.training_loader) return hooks.training_loader(context_);
    return gannet::make_loader(gannet::Dataset<>(samples(context_.get_hparam<int64_t>("samples"))), context_.loader_options());
  }
  Loader build_validation_data_loader() override {
    if (hooks.validation_loader) return hooks.validation_loader(context_);
    return context_.make_validation_loader(gannet::Dataset<>(samples(hooks.validation_samples, 100)));
  }
  gannet::BatchMetrics train_batch(Iterator& iterator, int64_t epoch, int64_t batch) override {
    EXPECT_EQ(batch, context_.current_train_batch());
    EXPECT_EQ(epoch, context_.current_train_epoch());
    auto& example = iterator.next();
    const auto here = context_.to_device(example);
    at::Tensor total;
    for (auto& engine : engines_) {
      // The second net learns from the first one's answer.
      const at::Tensor target = total.defined() ? here.target + total.detach() : here.target;
      const at::Tensor loss = torch::mse_loss(engine->forward(here.data), target);
      if (hooks.steps) {
        engine->backward(loss);
        engine->step();
      }
      total = loss.detach();
    }
    largest_->largest = std::max(largest_->largest, here.target.max().item<double>());
    count_->update(1);
    if (hooks.on_batch) hooks.on_batch(context_);
    if (hooks.train_metrics)
      if (auto metrics = hooks.train_metrics(here, total)) return *metrics;
    return {{"loss", total}, {"batch", batch}};
  }
  gannet::BatchMetrics evaluate_batch(Iterator& iterator, int64_t) override {
    const auto here = context_.to_device(iterator.next());
    const at::Tensor loss = torch::mse_loss(engines_[0]->forward(here.data), here.target);
    EXPECT_FALSE(engines_[0]->module()->is_training());
    EXPECT_FALSE(loss.requires_grad());
    count_->update(1);
    if (hooks.evaluation_metrics)
      if (auto metrics = hooks.evaluation_metrics(here, loss)) return *metrics;
    return {{"loss", loss}, {"target", here.target.mean()}};
  }

  gannet::TrialContext& context_;
  std::vector<std::shared_ptr<gannet::Engine<NetImpl>>> engines_;
  std::shared_ptr<Largest> largest_;
  std::shared_ptr<gannet::FunctionReducer> count_;
};

}  // namespace trial_test
