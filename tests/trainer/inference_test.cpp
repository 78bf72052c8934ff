// A Trainer that only evaluates, and evaluations of other samples than eval_dataset.
#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tokens.h"

namespace {

using gannet::Dict;
using trainer_test::make_model;
using trainer_test::make_samples;

gannet::Metrics accuracy(const gannet::EvalPrediction& prediction) {
  return {{"accuracy", trainer_test::accuracy_of(prediction)}};
}

// A document's config, whose schedule needs the length of a run.
Dict config() {
  return {
      {"train_batch_size", "auto"},
      {"train_micro_batch_size_per_gpu", "auto"},
      {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", "auto"}}}}},
      {"scheduler", Dict{{"type", "WarmupDecayLR"}, {"params", Dict{{"warmup_max_lr", "auto"}, {"total_num_steps", "auto"}}}}}};
}

TEST(TrainerForInference, EvaluatesAsATrainersModelDoesAndDoesNotTrain) {
  const auto folder = std::filesystem::temp_directory_path() / ("trainer_inference" + std::to_string(::getpid()));
  for (const gannet::Value& given : {gannet::Value(config()), gannet::Value()}) {
    const gannet::TrainingArguments arguments{.output_dir = folder, .weight_decay = 0.1, .deepspeed = given};
    gannet::Trainer reference(make_model(), gannet::TrainingArguments{.output_dir = folder},
                              {.eval_dataset = make_samples(13, 100), .compute_metrics = accuracy});
    gannet::Trainer trainer(make_model(), arguments,
                            {.eval_dataset = make_samples(13, 100), .compute_metrics = accuracy, .inference = true});
    EXPECT_EQ(trainer.evaluate(), reference.evaluate());
    try {
      trainer.train();
      ADD_FAILURE() << "it trains";
    } catch (const gannet::Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(".inference = true"));
    }
    trainer.set_eval_dataset(make_samples(5, 200));
    EXPECT_EQ(trainer.predict().num_samples, 5);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
