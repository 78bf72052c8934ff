// lr_scheduler_type with its lr_scheduler_kwargs in the Trainer: the rate of every update beside get_scheduler of transformers
// (tests/schedulers/transformers_schedules.json), also after a resume.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "tokens.h"

namespace {

namespace fs = std::filesystem;
using gannet::Trainer;
using gannet::TrainingArguments;
using nlohmann::json;
using testing::HasSubstr;
using trainer_test::make_model;
using trainer_test::make_samples;

class TrainerSchedules : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    at::set_num_threads(1);  // the model is tiny, and other tests run beside this one
  }
  void TearDown() override {
    fs::remove_all(folder_);
    at::set_num_threads(threads_);
  }

  TrainingArguments arguments_of(const json& given) const {
    TrainingArguments a;
    a.output_dir = folder_;
    a.per_device_train_batch_size = 1;
    a.save_strategy = "no";
    a.learning_rate = given.at("learning_rate");
    a.max_steps = given.at("max_steps");
    a.lr_scheduler_type = given.at("lr_scheduler_type");
    a.warmup_steps = given.value("warmup_steps", 0.0);
    if (given.contains("lr_scheduler_kwargs"))
      for (const auto& [name, value] : given.at("lr_scheduler_kwargs").items())
        a.lr_scheduler_kwargs[name] = value.is_string()           ? gannet::Value(value.get<std::string>())
                                      : value.is_number_integer() ? gannet::Value(value.get<int64_t>())
                                                                  : gannet::Value(value.get<double>());
    return a;
  }
  static std::vector<double> rates_of(const TrainingArguments& a) {
    Trainer trainer(make_model(), a, {.train_dataset = make_samples(40)});
    std::vector<double> rates;
    for (auto& step : trainer.steps()) rates.push_back(step.learning_rate());
    return rates;
  }

  const int threads_ = at::get_num_threads();
  const std::string folder_ = fs::temp_directory_path() / ("gannet_trainer_schedules_" + std::to_string(getpid()));
};

TEST_F(TrainerSchedules, GiveTheRatesOfTransformersAlsoAfterAResume) {
  std::ifstream in(GANNET_SOURCE_DIR "/tests/schedulers/transformers_schedules.json");
  const json cases = json::parse(in);
  std::set<std::string> types;
  for (const auto& [name, each] : cases.items()) {
    TrainingArguments a = arguments_of(each.at("arguments"));
    const auto expected = each.at("rates").get<std::vector<double>>();
    const double rounding = 8 * std::numeric_limits<double>::epsilon() * a.learning_rate;
    const bool resumes = types.insert(a.lr_scheduler_type).second;
    a.save_strategy = resumes ? "steps" : "no";
    a.save_steps = 13;
    const auto rates = rates_of(a);
    ASSERT_EQ(static_cast<int64_t>(rates.size()), a.max_steps) << name;
    for (size_t i = 0; i < rates.size(); ++i) EXPECT_NEAR(rates[i], expected[i], rounding) << name << " update " << i + 1;
    if (!resumes) continue;
    a.resume_from_checkpoint = folder_ + "/checkpoint-13";
    a.save_strategy = "no";
    const auto resumed = rates_of(a);
    EXPECT_EQ(resumed, std::vector<double>(rates.begin() + 13, rates.end())) << name;
    fs::remove_all(folder_);
  }
  EXPECT_GT(cases.size(), 20u);
  EXPECT_EQ(types.size(), 10u);  // a plateau has a test of its own
}

// The config's own optimizer keeps its rate, which the schedule then scales.
TEST_F(TrainerSchedules, FollowTheOptimizersOwnRate) {
  TrainingArguments a = arguments_of({{"learning_rate", 5e-5}, {"max_steps", 4}, {"lr_scheduler_type", "cosine"}});
  a.deepspeed = R"({"optimizer": {"type": "SGD", "params": {"lr": 0.5}}})";
  const auto rates = rates_of(a);
  EXPECT_DOUBLE_EQ(rates[0], 0.5);
  EXPECT_DOUBLE_EQ(rates[2], 0.25);
}

// Its own loader says how long an epoch is only once it is made.
TEST_F(TrainerSchedules, KnowTheLengthOfARunWithALoaderOfItsOwn) {
  TrainingArguments a;
  a.output_dir = folder_;
  a.save_strategy = "no";
  a.per_device_train_batch_size = 2;
  a.num_train_epochs = 2;
  a.learning_rate = 0.01;
  int asked = 0;
  Trainer trainer(make_model(), a,
                  {.train_dataset = make_samples(40), .train_loader = [&](const auto& data, gannet::LoaderOptions options) {
                     ++asked;
                     options.batch_size = 8;
                     return gannet::make_loader<gannet::Example>(data, {}, options);
                   }});
  std::vector<double> rates;
  for (auto& step : trainer.steps()) rates.push_back(step.learning_rate());
  ASSERT_EQ(rates.size(), 10u);
  EXPECT_DOUBLE_EQ(rates[9], 0.001);
  EXPECT_EQ(asked, 2);
}

TEST_F(TrainerSchedules, APlateauFollowsTheMetricOfEachEvaluation) {
  TrainingArguments a = arguments_of({{"learning_rate", 0.01}, {"max_steps", 6}, {"lr_scheduler_type", "reduce_lr_on_plateau"}});
  a.lr_scheduler_kwargs = gannet::Dict{{"factor", 0.5}, {"patience", 0}, {"mode", "max"}};
  EXPECT_THAT([&] { a.check(); }, testing::ThrowsMessage<gannet::Error>(HasSubstr("needs evaluations")));
  a.eval_strategy = "steps";
  a.eval_steps = 2;
  a.metric_for_best_model = "score";
  a.save_strategy = "steps";
  a.save_steps = 4;
  const auto run = [&](std::vector<double> scores) {
    Trainer trainer(make_model(), a,
                    {.train_dataset = make_samples(40),
                     .eval_dataset = make_samples(4),
                     .compute_metrics = [&, next = size_t{0}](const gannet::EvalPrediction&) mutable -> gannet::Metrics {
                       return {{"score", scores.at(next++)}};
                     }});
    std::vector<double> rates;
    for (auto& step : trainer.steps()) rates.push_back(step.learning_rate());
    return rates;
  };
  EXPECT_THAT(run({2, 1, 1.5}), testing::ElementsAre(0.01, 0.01, 0.01, 0.01, 0.005, 0.005));
  a.resume_from_checkpoint = folder_ + "/checkpoint-4";  // the best score so far is 2
  a.max_steps = 8;
  EXPECT_THAT(run({1.5, 3}), testing::ElementsAre(0.005, 0.005, 0.0025, 0.0025));
}

TEST_F(TrainerSchedules, AMistakeIsNamedBeforeTraining) {
  TrainingArguments a = arguments_of({{"learning_rate", 0.01}, {"max_steps", 6}, {"lr_scheduler_type", "cosine"}});
  a.lr_scheduler_kwargs = gannet::Dict{{"num_cicles", 2}};
  EXPECT_THAT([&] { a.check(); }, testing::ThrowsMessage<gannet::Error>(HasSubstr("did you mean 'num_cycles'?")));
  a.lr_scheduler_kwargs = gannet::Dict{{"num_cycles", "many"}};
  EXPECT_THAT([&] { rates_of(a); }, testing::ThrowsMessage<gannet::Error>(HasSubstr("'num_cycles' of scheduler plugin cosine")));
  a.lr_scheduler_type = "cosine_with_min_lr";
  a.lr_scheduler_kwargs = {};
  EXPECT_THAT([&] { rates_of(a); }, testing::ThrowsMessage<gannet::Error>(HasSubstr("neither min_lr nor min_lr_rate")));
}

}  // namespace
