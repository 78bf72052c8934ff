// The Trainer over a pipeline of one stage: batches of other types, short updates, and losses.
#include <gannet/pipe.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "short_run.h"
#include "tokens.h"

namespace mine {

struct Sample {
  at::Tensor ids, next;
  std::string note;
};
gannet::pipe::MicroBatch to_micro_batch(const Sample& sample) { return {{sample.ids}, {sample.next}}; }

}  // namespace mine

namespace gannet {
namespace {

using trainer_test::arguments_for;
using trainer_test::make_samples;
using trainer_test::Removed;

at::Tensor mean_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return torch::cross_entropy_loss(logits.flatten(0, -2), labels.flatten());
}

pipe::Module module_of(const std::shared_ptr<trainer_test::TokensImpl>& model) {
  const auto normalized = [model](const at::Tensor& x) { return torch::gelu(model->norm(x)); };
  return pipe::Module(std::vector<Layer>{layer_of("embedding", model->embedding),
                                         function("norm", {model->norm.ptr()}, normalized), layer_of("out", model->out)},
                      {.num_stages = 1, .loss_fn = mean_loss});
}

// The losses of the updates, and the evaluation's.
template <class Batch>
std::vector<double> losses_with(const Collate<Batch>& collate) {
  const Removed folder;
  Trainer<pipe::ModuleImpl, Batch> trainer(module_of(trainer_test::make_model()), arguments_for(folder.path),
                                           {.train_dataset = Dataset<Batch>(make_samples(13)),
                                            .eval_dataset = Dataset<Batch>(make_samples(13, 50)),
                                            .data_collator = collate});
  std::vector<double> losses;
  for (auto& step : trainer.steps()) losses.push_back(step.loss());
  losses.push_back(trainer.evaluate().at("eval_loss"));
  return losses;
}

Example stacked(const std::vector<Example>& samples) {
  std::vector<at::Tensor> data, target;
  for (const Example& sample : samples) {
    data.push_back(sample.data);
    target.push_back(sample.target);
  }
  return {torch::stack(data), torch::stack(target)};
}

// Batches of each type count by their labels.
TEST(TrainerOfAPipeline, TakesBatchesOfOtherTypes) {
  const std::vector<double> expected = losses_with<Example>({});
  using Pair = std::pair<at::Tensor, at::Tensor>;
  const auto pair = [](const std::vector<Example>& samples) -> Pair { return {stacked(samples).data, stacked(samples).target}; };
  EXPECT_EQ(losses_with<Pair>(pair), expected);
  const auto sample = [](const std::vector<Example>& samples) -> mine::Sample {
    return {stacked(samples).data, stacked(samples).target, "of mine"};
  };
  EXPECT_EQ(losses_with<mine::Sample>(sample), expected);
}

// Batch norm counts each micro-batch of the data once, also where the last update of an epoch is short.
TEST(TrainerOfAPipeline, AShortUpdateRunsTheMicroBatchesThatThereAre) {
  struct NormedImpl : torch::nn::Module {
    NormedImpl() {
      norm = register_module("norm", torch::nn::BatchNorm1d(3));
      out = register_module("out", torch::nn::Linear(3, 4));
    }
    at::Tensor forward(const at::Tensor& x) { return out(norm(x)); }
    std::vector<Layer> layers() { return {layer_of("norm", norm), layer_of("out", out)}; }
    torch::nn::BatchNorm1d norm{nullptr};
    torch::nn::Linear out{nullptr};
  };
  std::vector<Example> samples;
  torch::manual_seed(9);
  for (int64_t i = 0; i < 10; ++i) samples.emplace_back(torch::randn({3}), torch::tensor(i % 4));
  const auto trained = [&](bool is_pipeline) {
    torch::manual_seed(3);
    const auto model = std::make_shared<NormedImpl>();
    const Removed folder;
    const TrainingArguments arguments = arguments_for(folder.path, 2, 4);
    if (is_pipeline) {
      const auto loss = [](const at::Tensor& logits, const at::Tensor& labels) {
        return torch::cross_entropy_loss(logits, labels);
      };
      Trainer(pipe::Module(model, {.num_stages = 1, .loss_fn = loss}), arguments, {.train_dataset = samples}).train();
    } else {
      Trainer(model, arguments, {.train_dataset = samples}).train();
    }
    return model;
  };
  const auto plain = trained(false), pipeline = trained(true);
  EXPECT_EQ(pipeline->norm->num_batches_tracked.item<int64_t>(), 10);
  EXPECT_TRUE(at::equal(pipeline->norm->running_mean, plain->norm->running_mean));
  EXPECT_TRUE(at::allclose(pipeline->out->weight, plain->out->weight, 0, 1e-6));
}

TEST(TrainerOfAPipeline, ALossOfForwardIsNotReplaced) {
  struct OwnLossImpl : trainer_test::TokensImpl {
    std::vector<Layer> layers() { return {layer_of("embedding", embedding), layer_of("out", out)}; }
  };
  const Removed folder;
  TrainingArguments arguments = arguments_for(folder.path);
  arguments.deepspeed = Dict{{"pipeline", Dict{{"stages", 2}}}};
  Trainer trainer(std::make_shared<OwnLossImpl>(), arguments, {.train_dataset = make_samples(8)});
  try {
    trainer.train();
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_THAT(error.what(), testing::HasSubstr("give the model pipeline_loss(outputs, labels)"));
  }
}

}  // namespace
}  // namespace gannet
