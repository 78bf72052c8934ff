// From arguments to the config and the engine: mistakes, "auto", what is logged.
#include <ATen/Context.h>
#include <gannet/log.h>
#include <gannet/pretrained.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "short_run.h"
#include "tokens.h"

namespace {

using gannet::Trainer;
using gannet::TrainingArguments;
using testing::ElementsAre;
using testing::HasSubstr;
using trainer_test::arguments_for;
using trainer_test::expect_near;
using trainer_test::make_model;
using trainer_test::make_samples;
using trainer_test::Removed;
namespace fs = std::filesystem;

TEST(Trainer, MistakesSayWhatToDo) {
  Removed folder;
  const auto with = [&](auto change, auto parts) {
    return mistake([&] {
      auto a = arguments_for(folder.path);
      a.max_steps = 2;
      change(a);
      Trainer trainer(make_model(), a, parts);
      trainer.train();
    });
  };
  using Parts = gannet::TrainerParts<trainer_test::TokensImpl>;
  const auto nothing = [](TrainingArguments&) {};
  EXPECT_THAT(with(nothing, Parts{}), HasSubstr("train_dataset is not given"));
  EXPECT_THAT(with([](auto& a) { a.eval_strategy = "epoch"; }, Parts{.train_dataset = make_samples(8)}),
              HasSubstr("there is no eval_dataset"));
  const auto by_f1 = [](auto& a) {
    a.eval_strategy = "steps";
    a.eval_steps = 1;
    a.metric_for_best_model = "f1";
  };
  EXPECT_THAT(with(by_f1, Parts{.train_dataset = make_samples(8),
                                .eval_dataset = make_samples(4),
                                .compute_metrics = [](const gannet::EvalPrediction&) { return gannet::Metrics{{"f2", 1}}; }}),
              HasSubstr("'eval_f1', which this evaluation does not have: eval_f2, eval_loss"));
  EXPECT_THAT(with(by_f1, Parts{.train_dataset = make_samples(8), .eval_dataset = make_samples(4)}),
              HasSubstr("metric_for_best_model is 'f1', and evaluations without compute_metrics have only eval_loss"));
  EXPECT_THAT(with([](auto& a) { a.deepspeed = R"({"train_micro_batch_size_per_gpu": 3, "gradient_clipping": 2})"; },
                   Parts{.train_dataset = make_samples(8)}),
              HasSubstr("train_micro_batch_size_per_gpu = 3 (config text:1:2), but per_device_train_batch_size gives 4"));
  EXPECT_THAT(with(nothing, Parts{.train_dataset = make_samples(8), .callbacks = {gannet::EarlyStopping{}}}),
              HasSubstr("EarlyStopping has no metric"));
}

TEST(Trainer, EveryAutoOfItsConfigIsFilledFromArgumentsDataAndModel) {
  struct Wide : trainer_test::TokensImpl {
    int64_t hidden_size() const { return 12; }
  };
  Removed folder;
  auto a = arguments_for(folder.path);  // 20 samples in updates of 8: 3 updates an epoch, 6 in all
  a.weight_decay = 0.25;
  a.max_grad_norm = 0.5;
  a.warmup_steps = 0.3;
  a.deepspeed = R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
      "warmup_num_steps": "auto", "total_num_steps": "auto", "warmup_type": "linear"}}})";
  Trainer trainer(std::make_shared<Wide>(), a, {.train_dataset = make_samples(20)});
  const std::string table = trainer.engine().config_table();
  for (const char* from : {"auto: hidden size 12", "auto: number of training steps", "auto: warmup_steps, warmup_ratio",
                           "auto: max_grad_norm", "auto: learning_rate", "auto: weight_decay", "auto: bf16"})
    EXPECT_THAT(table, HasSubstr(from));
  std::vector<double> rates;
  for (auto& step : trainer.steps()) rates.push_back(step.learning_rate());
  // The plugin has DeepSpeed's rule: the first two updates have the rate of step 0.
  expect_near(rates, {0, 0, 0.005, 0.01, 0.0075, 0.005}, 1e-9);
}

TEST(Trainer, EvaluatesWithTheAverageThatEmaDecayAsksFor) {
  Removed folder;
  auto a = arguments_for(folder.path);
  a.ema_decay = 0.5;
  a.eval_strategy = "epoch";
  Trainer trainer(make_model(), a, {.train_dataset = make_samples(20), .eval_dataset = make_samples(8)});
  EXPECT_EQ(trainer.engine().config_value("gannet.ema.decay").as_number(), 0.5);
  trainer.train();
  const at::Tensor trained = trainer.engine().fp32_parameters()[0].second.clone();  // the engine's own memory
  trainer.engine().eval();
  EXPECT_FALSE(trainer.engine().fp32_parameters()[0].second.equal(trained));
  trainer.engine().train();
  a.deepspeed = R"({"gannet": {"ema": {"decay": 0.9}}})";
  EXPECT_THAT(
      mistake([&] { Trainer(make_model(), a, {.train_dataset = make_samples(20), .eval_dataset = make_samples(8)}).engine(); }),
      HasSubstr("gannet.ema.decay is 0.9, but ema_decay gives 0.5"));
  a.eval_strategy = "no";
  a.deepspeed = R"({"gannet": {"ema": {"decay": 0.5, "warmup": true}}, "train_micro_batch_size_per_gpu": "auto"})";
  EXPECT_THAT(log_of(a), HasSubstr("gannet.ema.warmup = true"));
}

TEST(Trainer, Tf32IsTorchsSwitchAndHasNoEffectOnACpu) {
  Removed folder;
  for (const bool on : {true, false}) {
    const std::string flag = on ? "--tf32" : "--no_tf32";
    std::vector<std::string> words = {"program", "--output_dir", folder.path, flag};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    int argc = static_cast<int>(argv.size());
    argv.push_back(nullptr);
    const TrainingArguments a = gannet::parse_training_arguments(argc, argv.data(), {.handle_signals = false});
    at::globalContext().setAllowTF32CuBLAS(!on);
    EXPECT_THAT(log_of(a), HasSubstr("no effect: tf32"));
    EXPECT_EQ(at::globalContext().allowTF32CuBLAS(), on);
    EXPECT_EQ(at::globalContext().allowTF32CuDNN(), on);
  }
  at::globalContext().setAllowTF32CuBLAS(false);
  EXPECT_THAT(log_of(arguments_for(folder.path)), testing::Not(HasSubstr("tf32")));
}

TEST(Trainer, TheConfigIsLoggedOnceWithOrigins) {
  Removed folder;
  auto a = arguments_for(folder.path);
  a.deepspeed = R"({"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": 0.75, "zero_optimization": {"stage": 1}})";
  const std::string text = log_of(a);
  EXPECT_THAT(text, HasSubstr("gradient_clipping = 0.75   # config text:1:44"));
  EXPECT_THAT(text, HasSubstr("train_micro_batch_size_per_gpu = 4   # auto: per_device_train_batch_size"));
  EXPECT_THAT(text, HasSubstr("scheduler.type = \"WarmupDecayLR\"   # auto: lr_scheduler_type's default"));
  EXPECT_THAT(text, HasSubstr("train_batch_size = 8   # computed from"));
  EXPECT_EQ(text.find("gradient_clipping ="), text.rfind("gradient_clipping ="));
  EXPECT_THAT(text, testing::Not(HasSubstr("# default")));
  EXPECT_THAT(log_of(a), testing::Not(HasSubstr("gradient_clipping"))) << "a second engine of the same config";
  a.deepspeed = R"({"dump_state": true, "train_micro_batch_size_per_gpu": "auto"})";
  EXPECT_THAT(log_of(a), HasSubstr("gradient_clipping = 1.0   # default"));
}

TEST(Trainer, ItsArgumentsAreOptionsOfFromPretrained) {
  TrainingArguments a;
  a.deepspeed = R"({"zero_optimization": {"stage": 3}})";
  const gannet::PretrainedOptions options = a;
  EXPECT_TRUE(options.config.is_zero3());
}

}  // namespace
