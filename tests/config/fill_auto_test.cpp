#include <gannet/fill_auto.h>
#include <gmock/gmock.h>

#include "expect_error.h"

namespace gannet {
namespace {

using testing::HasSubstr;
using testing::Not;

// Every key that may be "auto" and is filled from arguments of the Trainer.
constexpr const char* kAll = R"({
  "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto", "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
  "amp": {"enabled": "auto", "opt_level": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
    "warmup_num_steps": "auto", "total_num_steps": "auto"}},
  "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto"}})";

Dict arguments() {
  return {{"learning_rate", 3e-5},
          {"weight_decay", 3e-7},
          {"warmup_steps", 500},
          {"max_steps", 5000},
          {"per_device_train_batch_size", 8},
          {"gradient_accumulation_steps", 2},
          {"max_grad_norm", 0.7},
          {"fp16", true},
          {"adam_beta1", 0.9},
          {"adam_beta2", 0.999},
          {"adam_epsilon", 1e-8}};
}

TEST(FillAuto, FillsEveryRowOfTheTableAndNamesTheArgument) {
  Config config(kAll);
  fill_auto(config, arguments(), {.world_size = 2, .hidden_size = 512});
  const auto expect = [&](const char* path, const Value& value, const char* origin) {
    const ConfigEntry entry = config.get(path);
    EXPECT_EQ(entry.value.to_json(), value.to_json()) << path;
    EXPECT_THAT(entry.origin, HasSubstr(origin)) << path;
  };
  expect("train_batch_size", 32, "world size 2");
  expect("train_micro_batch_size_per_gpu", 8, "auto: per_device_train_batch_size");
  expect("gradient_accumulation_steps", 2, "gradient_accumulation_steps");
  expect("gradient_clipping", 0.7, "max_grad_norm");
  expect("fp16.enabled", true, "fp16");
  expect("bf16.enabled", false, "bf16");
  expect("amp.enabled", false, "fp16_backend");
  expect("amp.opt_level", "O1", "fp16_opt_level");
  expect("optimizer.params.lr", 3e-5, "learning_rate");
  expect("optimizer.params.betas", List{0.9, 0.999}, "adam_beta1");
  expect("optimizer.params.eps", 1e-8, "adam_epsilon");
  expect("optimizer.params.weight_decay", 3e-7, "weight_decay");
  expect("scheduler.params.warmup_min_lr", 0.0, "auto: 0");
  expect("scheduler.params.warmup_max_lr", 3e-5, "learning_rate");
  expect("scheduler.params.warmup_num_steps", 500, "warmup_steps");
  expect("scheduler.params.total_num_steps", 5000, "max_steps");
  expect("zero_optimization.reduce_bucket_size", 262144, "hidden size 512");
  expect("zero_optimization.stage3_prefetch_bucket_size", 235929, "hidden size 512");
  expect("zero_optimization.stage3_param_persistence_threshold", 5120, "hidden size 512");
  std::vector<std::string> mistakes;
  EXPECT_TRUE(config.is_valid(2, &mistakes)) << testing::PrintToString(mistakes);
}

// The default learning_rate of 5e-5 must not take the place of a rate that the config gives its optimizer.
TEST(FillAuto, AScheduleWithoutALearningRateLeadsToTheOptimizersOwn) {
  const std::string config = R"({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": RATE}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": 3}}})";
  const auto most = [&](const std::string& rate, const Dict& given) {
    std::string text = config;
    Config filled(text.replace(text.find("RATE"), 4, rate));
    fill_auto(filled, given, {});
    return filled.get("scheduler.params.warmup_max_lr");
  };
  EXPECT_EQ(most("0.001", {}).value.as_number(), 0.001);
  EXPECT_THAT(most("0.001", {}).origin, HasSubstr("auto: optimizer.params.lr"));
  EXPECT_EQ(most("0.001", {{"learning_rate", 0.001}}).value.as_number(), 0.001);
  EXPECT_EQ(most("\"auto\"", {}).value.as_number(), 5e-5);
  EXPECT_EQ(most("\"auto\"", {{"learning_rate", 0.002}}).value.as_number(), 0.002);
}

TEST(FillAuto, ApexTakesFp16InsteadOfTheFp16Section) {
  Dict given = arguments();
  given["fp16_backend"] = "apex";
  Config config(kAll);
  fill_auto(config, given, {.world_size = 2, .hidden_size = 512});
  EXPECT_FALSE(config.get("fp16.enabled").value.as_bool());
  EXPECT_TRUE(config.get("amp.enabled").value.as_bool());
}

TEST(FillAuto, OneErrorListsEveryContradictionWithBothPlaces) {
  Config config(R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "2", "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": "3e-7"}}})");
  const std::string text = error_of([&] { fill_auto(config, arguments(), {.world_size = 2}); }).what();
  EXPECT_THAT(text, HasSubstr("train_micro_batch_size_per_gpu = 4 (config text:1:2), but per_device_train_batch_size gives 8"));
  EXPECT_THAT(text, HasSubstr("gradient_clipping = 1.0"));
  EXPECT_THAT(text, HasSubstr("but max_grad_norm gives 0.7"));
  EXPECT_THAT(text, HasSubstr("optimizer.params.lr"));
  EXPECT_THAT(text, Not(HasSubstr("gradient_accumulation_steps ="))) << "\"2\" is 2";
  EXPECT_THAT(text, Not(HasSubstr("optimizer.params.weight_decay"))) << "\"3e-7\" is 3e-7";
  EXPECT_EQ(config.get("train_micro_batch_size_per_gpu").value, Value(4)) << "a failed fill changes nothing";
}

TEST(FillAuto, WithoutAnOptimizerOrASchedulerTheArgumentsGiveThem) {
  Config linear("{}");
  fill_auto(linear, arguments(), {.world_size = 2});
  EXPECT_EQ(linear.get("optimizer.type").value, Value("AdamW"));
  EXPECT_EQ(linear.get("optimizer.params.lr").value, Value(3e-5));
  EXPECT_EQ(linear.get("scheduler.type").value, Value("WarmupDecayLR"));
  EXPECT_EQ(linear.get("scheduler.params.total_num_steps").value, Value(5000));

  Dict given = arguments();
  given["lr_scheduler_type"] = "constant_with_warmup";
  Config constant("{}");
  fill_auto(constant, given, {.world_size = 2});
  EXPECT_EQ(constant.get("scheduler.type").value, Value("WarmupLR"));

  given["lr_scheduler_type"] = "cosine_with_min_lr";
  given["lr_scheduler_kwargs"] = Dict{{"min_lr", 1e-6}, {"num_cycles", nullptr}};
  Config cosine("{}");
  fill_auto(cosine, given, {.world_size = 2});
  EXPECT_EQ(cosine.get("scheduler.type").value, Value("cosine_with_min_lr"));
  EXPECT_EQ(cosine.get("scheduler.params.warmup_num_steps").value, Value(500));
  EXPECT_EQ(cosine.get("scheduler.params.min_lr").value, Value(1e-6));
  EXPECT_EQ(cosine.get("scheduler.params.min_lr").origin, "auto: lr_scheduler_kwargs");
}

TEST(FillAuto, NamesTheMistakeInAScheduleOfTheArguments) {
  const auto said = [](const Dict& changed) {
    Dict given = arguments();
    for (const auto& [name, value] : changed.entries()) given[name] = value;
    Config config("{}");
    return std::string(error_of([&] { fill_auto(config, given, {.world_size = 2}); }).what());
  };
  EXPECT_THAT(said({{"lr_scheduler_type", "cosin"}}), HasSubstr("did you mean 'cosine'?"));
  EXPECT_THAT(said({{"lr_scheduler_type", "greedy"}}), HasSubstr("it is one of linear, constant, constant_with_warmup, cosine"));
  EXPECT_THAT(said({{"lr_scheduler_type", "polynomial"}, {"lr_scheduler_kwargs", Dict{{"powr", 2}}}}),
              HasSubstr("has no 'powr'; did you mean 'power'?"));
  EXPECT_THAT(said({{"lr_scheduler_kwargs", R"({"num_cycles": 2})"}}), HasSubstr("it takes none"));
  EXPECT_THAT(said({{"lr_scheduler_type", "cosine"}, {"max_steps", -1}}), HasSubstr("needs the number of training steps"));
}

TEST(FillAuto, ASchedulesOwnEndReplacesTheNumberOfSteps) {
  Config config("{}");
  fill_auto(config,
            Dict{{"lr_scheduler_type", "warmup_stable_decay"},
                 {"lr_scheduler_kwargs", Dict{{"num_stable_steps", 5}, {"num_decay_steps", 3}}}},
            {});
  EXPECT_EQ(config.get("scheduler.params.num_stable_steps").value, Value(5));
  EXPECT_TRUE(config.get("scheduler.params.total_num_steps").value.is_null());
}

// DeepSpeed's schedules warm up for at least one update; transformers fills 1 for none.
TEST(FillAuto, NoWarmUpIsOneUpdateForDeepSpeedsSchedulesAlone) {
  for (const auto& [type, steps] : {std::pair("WarmupLR", 1), {"cosine", 0}}) {
    Config config(Dict{{"scheduler", Dict{{"type", type}, {"params", Dict{{"warmup_num_steps", "auto"}}}}}});
    fill_auto(config, Dict{{"warmup_steps", 0}}, {});
    EXPECT_EQ(config.get("scheduler.params.warmup_num_steps").value, Value(steps)) << type;
  }
}

TEST(FillAuto, WarmUpAsAShareOfTheRunIsRoundedUp) {
  for (const char* name : {"warmup_ratio", "warmup_steps"}) {
    Config config(kAll);
    Dict given{{name, 0.1}};
    fill_auto(config, given, {.num_training_steps = 1001});
    EXPECT_EQ(config.get("scheduler.params.warmup_num_steps").value, Value(101)) << name;
  }
}

TEST(FillAuto, SizesAloneLeaveTheRestToTheArguments) {
  Config config(Dict{{"train_batch_size", "auto"},
                     {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", "auto"}}}}},
                     {"zero_optimization", Dict{{"stage", 3},
                                                {"reduce_bucket_size", 1000},
                                                {"stage3_prefetch_bucket_size", "auto"},
                                                {"stage3_param_persistence_threshold", "auto"}}}});
  fill_auto_sizes(config, 32);
  EXPECT_EQ(config.get("zero_optimization.reduce_bucket_size").value, Value(1000));
  EXPECT_EQ(config.get("zero_optimization.stage3_prefetch_bucket_size").value, Value(921));
  EXPECT_EQ(config.get("zero_optimization.stage3_param_persistence_threshold").value, Value(320));
  EXPECT_TRUE(config.is_auto("train_batch_size"));
  EXPECT_TRUE(config.is_auto("optimizer.params.lr"));
}

TEST(FillAuto, ReadsTheHiddenSizeUnderEveryName) {
  EXPECT_EQ(hidden_size_of(Dict{{"hidden_size", 768}}), 768);
  EXPECT_EQ(hidden_size_of(Dict{{"n_embd", 1600}}), 1600);
  EXPECT_EQ(hidden_size_of(Dict{{"d_model", 512}}), 512);
  EXPECT_EQ(hidden_size_of(Dict{{"hidden_sizes", List{64, 320, 128}}}), 320);
  EXPECT_EQ(hidden_size_of(Dict{{"text_config", Dict{{"hidden_size", 4096}}}}), 4096);
  EXPECT_EQ(hidden_size_of(Dict{{"model_type", "x"}}), std::nullopt);
}

TEST(ConfigReading, GivesValueTypeAndOrigin) {
  Config config(R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}},
    "bf16": {"enabled": "auto"}})");
  const ConfigEntry stage = config.get("zero_optimization.stage");
  EXPECT_EQ(stage.value, Value(3));
  EXPECT_EQ(stage.type, "integer");
  EXPECT_EQ(stage.origin, "config text:1:47");
  EXPECT_EQ(config.get("gradient_clipping").origin, "default");
  EXPECT_TRUE(config.is_auto("bf16.enabled"));
  EXPECT_TRUE(config.is_zero3());
  EXPECT_TRUE(config.is_offload());
  EXPECT_FALSE(Config().is_zero3());
  EXPECT_THAT(error_of([&] { config.get("zero_optimization.stege"); }).what(), HasSubstr("there is no key"));
  config.fill("zero_optimization.stage", 2, "program");
  EXPECT_EQ(config.get("zero_optimization.stage").origin, "program");
  EXPECT_FALSE(config.is_offload()) << "offload_param acts at stage 3 only";
}

TEST(ConfigReading, ResolvesAndListsEveryMistake) {
  std::vector<std::string> mistakes;
  EXPECT_FALSE(Config(R"({"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2,
    "fp16": {"enabled": true}, "bf16": {"enabled": true}})")
                   .is_valid(1, &mistakes));
  EXPECT_EQ(mistakes.size(), 2u) << testing::PrintToString(mistakes);
  for (const ConfigEntry& entry : Config::from_dict({{"train_batch_size", 8}}).resolve(2))
    if (entry.path == "train_micro_batch_size_per_gpu") {
      EXPECT_EQ(entry.value, Value(4));
      return;
    }
  FAIL() << "no train_micro_batch_size_per_gpu";
}

}  // namespace
}  // namespace gannet
