// Habits of Hugging Face Trainer users with arguments and the config: which learning rate applies,
// numbers of schedules, older commands.
#include "habits.h"

namespace {

using namespace trainer_test;
using testing::HasSubstr;

TEST_F(Habits, TheRateOfTheConfigsOptimizerIsTheBaseOfTheSchedule) {
  auto a = arguments(4);
  a.learning_rate = TrainingArguments().learning_rate;  // not given
  a.deepspeed = R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.2}}})";
  {
    Trainer trainer(make_model(), a, {.train_dataset = make_samples(16)});
    expect_near(rates_of(trainer), {0.2, 0.15, 0.1, 0.05});
  }
  // Also for formulas that name a rate: down to 0.1 of 0.2.
  a.lr_scheduler_type = "cosine_with_min_lr";
  a.lr_scheduler_kwargs = {{"min_lr", 0.1}};
  {
    Trainer trainer(make_model(), a, {.train_dataset = make_samples(16)});
    const auto rates = rates_of(trainer);
    EXPECT_NEAR(rates[0], 0.2, 1e-9);
    EXPECT_NEAR(rates[2], 0.15, 1e-9);
  }
  // And of an optimizer that the program gives.
  a.lr_scheduler_type = "linear";
  a.lr_scheduler_kwargs = {};
  a.deepspeed = {};
  auto model = make_model();
  Trainer trainer(model, a,
                  {.train_dataset = make_samples(16),
                   .optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.4))});
  expect_near(rates_of(trainer), {0.4, 0.3, 0.2, 0.1});
}

TEST_F(Habits, GroupsWithRatesOfTheirOwnKeepTheirRatio) {
  auto a = arguments(2);
  a.deepspeed = R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.01},
    "param_groups": [{"match": ["*bias"], "lr": 0.002}]}})";
  Trainer trainer(make_model(), a, {.train_dataset = make_samples(8)});
  std::vector<double> seen;
  for (auto& step : trainer.steps()) {
    (void)step;
    for (const double rate : trainer.engine().get_lr()) seen.push_back(rate);
  }
  expect_near(seen, {0.005, 0.001, 0, 0});
}

TEST_F(Habits, NumbersOfASchedulesThatItDoesNotHaveAreRefused) {
  const auto told = [&](const char* type, const gannet::Dict& kwargs) {
    auto a = arguments(4);
    a.lr_scheduler_type = type;
    a.lr_scheduler_kwargs = kwargs;
    return error_of([&] { Trainer(make_model(), a, {.train_dataset = make_samples(16)}).engine(); });
  };
  EXPECT_THAT(told("cosine", {{"num_cycle", 2}}), HasSubstr("cosine has no 'num_cycle'; did you mean 'num_cycles'?"));
  EXPECT_THAT(told("linear", {{"power", 2}}), HasSubstr("linear has no 'power'"));
  EXPECT_THAT(told("polynomial", {{"power", "two"}}), HasSubstr("'power' of scheduler plugin polynomial"));
  EXPECT_THAT(told("cosine_with_min_lr", {}), HasSubstr("neither min_lr nor min_lr_rate"));
  EXPECT_EQ(told("polynomial", {{"power", 2}, {"lr_end", 1e-6}}), "no error");
}

TEST_F(Habits, ApexIsTheConfigsAmpSection) {
  auto a = gannet::training_arguments_from({{"output_dir", (folder / "run").string()},
                                            {"fp16", true},
                                            {"fp16_backend", "apex"},
                                            {"fp16_opt_level", "O2"},
                                            {"max_steps", 1}});
  Trainer trainer(make_model(), a, {.train_dataset = make_samples(8)});
  const std::string table = trainer.engine().config_table();
  EXPECT_THAT(table, testing::ContainsRegex("amp.opt_level[^\n]*O2"));
  EXPECT_THAT(table, testing::Not(testing::ContainsRegex("fp16.enabled[^\n]*true")));
  EXPECT_NO_THROW(trainer.train());
  // An "auto" of the config is filled likewise; a config that contradicts the command is an error.
  a.deepspeed = R"({"amp": {"enabled": "auto", "opt_level": "auto"}, "fp16": {"enabled": "auto"}})";
  Trainer filled(make_model(), a, {.train_dataset = make_samples(8)});
  EXPECT_THAT(filled.engine().config_table(), testing::ContainsRegex("amp.opt_level[^\n]*O2"));
  a.deepspeed = R"({"amp": {"enabled": true, "opt_level": "O1"}})";
  Trainer contradicting(make_model(), a, {.train_dataset = make_samples(8)});
  EXPECT_THAT(error_of([&] { contradicting.engine(); }), HasSubstr("fp16_opt_level"));
}

TEST_F(Habits, RefusedArgumentsSayWhy) {
  TrainingArguments a = arguments();
  a.bf16_full_eval = true;
  EXPECT_THAT(error_of([&] { a.check(); }), HasSubstr("gradient accumulators"));
  a.bf16_full_eval = false;
  a.fp16_full_eval = true;
  EXPECT_THAT(error_of([&] { a.check(); }), HasSubstr("gradient accumulators"));
  const std::string limits = text_of(GANNET_SOURCE_DIR "/docs/limits.md");
  for (const char* name : {"`auto_find_batch_size`", "`bf16_full_eval`", "`fp16_full_eval`"})
    EXPECT_THAT(limits, HasSubstr(name));
}

TEST_F(Habits, AnAutoWarmupOfNoStepsTrains) {
  auto a = arguments(3);
  a.deepspeed = R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "scheduler": {"type": "WarmupLR",
    "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}})";
  Trainer trainer(make_model(), a, {.train_dataset = make_samples(16)});
  expect_near(rates_of(trainer), {0, 0, 0.01});  // DeepSpeed's least warm-up, 2 steps
}

}  // namespace
