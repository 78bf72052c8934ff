// A trial of a pipeline: train_batch and evaluate_batch are one call of the engine each.
#pragma once

#include <gannet/lazy.h>
#include <gannet/pipe.h>

#include "small_trial.h"

namespace trial_test {

class StagedTrial : public gannet::Trial<> {
 public:
  explicit StagedTrial(gannet::TrialContext& context) : context_(context) {
    using torch::nn::Linear;
    const auto tanh = [](const at::Tensor& x) { return torch::tanh(x); };
    std::vector<gannet::Layer> layers{gannet::layer<Linear>("first", 3, 8), gannet::function("tanh", tanh),
                                      gannet::layer<Linear>("second", 8, 8), gannet::layer<Linear>("third", 8, 1)};
    const auto loss = [](const at::Tensor& y, const at::Tensor& target) { return torch::mse_loss(y.squeeze(-1), target); };
    engine_ = context.wrap_model_engine(
        gannet::initialize(gannet::pipe::Module(layers, {.num_stages = context.size(), .loss_fn = loss}),
                           {.config = context.deepspeed_config()})
            .engine);
  }
  Loader build_training_data_loader() override {
    return gannet::make_loader(gannet::Dataset<>(samples(12)), context_.loader_options());
  }
  Loader build_validation_data_loader() override { return context_.make_validation_loader(gannet::Dataset<>(samples(5, 100))); }
  gannet::BatchMetrics train_batch(Iterator& iterator, int64_t, int64_t batch) override {
    if (hooks.on_batch) hooks.on_batch(context_);
    EXPECT_EQ(batch, engine_->global_steps()) << "one call for each step";
    return {{"loss", engine_->train_batch(iterator)}};
  }
  gannet::BatchMetrics evaluate_batch(Iterator& iterator, int64_t) override {
    return {{"loss", *engine_->eval_batch(iterator, {.num_micro_batches = 1}).loss}};
  }

 private:
  gannet::TrialContext& context_;
  std::shared_ptr<gannet::PipelineEngine> engine_;
};

}  // namespace trial_test
