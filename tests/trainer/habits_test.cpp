// What users of Hugging Face's Trainer are used to, and what goes wrong in practice: rates of the config, labels that the model
// shifts, dtypes, states of callbacks, folders that are moved or shared, data that end early, functions that throw.
#include <gannet/models/gpt2.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "tokens.h"

namespace {

using gannet::Trainer;
using gannet::TrainingArguments;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;
using trainer_test::make_model;
using trainer_test::make_samples;
namespace fs = std::filesystem;

class Habits : public testing::Test {
 protected:
  void SetUp() override {
    folder = fs::temp_directory_path() / ("gannet_habits_" + std::to_string(getpid()));
    fs::remove_all(folder);
    gannet::set_log_sink([this](gannet::LogLevel, const std::string& line) { lines.push_back(line); });
  }
  void TearDown() override {
    gannet::set_log_sink({});
    fs::remove_all(folder);
  }
  TrainingArguments arguments(int64_t steps = 2) const {
    TrainingArguments a;
    a.output_dir = folder / "run";
    a.per_device_train_batch_size = 4;
    a.learning_rate = 0.01;
    a.max_steps = steps;
    a.save_strategy = "no";
    a.train_sampling_strategy = "sequential";
    a.disable_tqdm = true;
    return a;
  }
  std::string log() const {
    std::string all;
    for (const auto& line : lines) all += line + "\n";
    return all;
  }
  std::vector<std::string> checkpoints(const std::string& run = "run") const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder / run))
      if (entry.path().filename().string().starts_with("checkpoint-")) found.push_back(entry.path().filename());
    return found;
  }
  fs::path folder;
  std::vector<std::string> lines;
};

template <class T>
std::vector<double> rates_of(T& trainer) {
  std::vector<double> rates;
  for (auto& step : trainer.steps()) rates.push_back(step.learning_rate());
  return rates;
}

template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const gannet::Error& error) {
    return error.what();
  }
  return "no error";
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-9) << i;
}

TEST_F(Habits, TheRateOfTheConfigsOptimizerIsTheBaseOfTheSchedule) {
  auto a = arguments(4);
  a.learning_rate = TrainingArguments().learning_rate;  // not given
  a.deepspeed = R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.2}}})";
  {
    Trainer trainer(make_model(), a, {.train_dataset = make_samples(16)});
    expect_near(rates_of(trainer), {0.2, 0.15, 0.1, 0.05});
  }
  // Of formulas that name a rate, too: down to 0.1 of 0.2.
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

std::shared_ptr<gannet::models::Gpt2Impl> small_gpt(at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(5);
  gannet::models::Gpt2Config config;
  config.vocab_size = trainer_test::kClasses;
  config.n_positions = 8;
  config.n_embd = 12;
  config.n_layer = 1;
  config.n_head = 2;
  config.embd_pdrop = config.resid_pdrop = config.attn_pdrop = 0;
  auto model = std::make_shared<gannet::models::Gpt2Impl>(config);
  model->to(dtype);
  return model;
}

// The loss of the first update of 8 samples, by hand: labels 1.. under logits ..L-1, labels of -100 left out.
double shifted_loss(gannet::models::Gpt2Impl& model, double smoothing) {
  torch::NoGradGuard no_grad;
  std::vector<at::Tensor> x, y;
  for (const auto& sample : make_samples(8)) {
    x.push_back(sample.data);
    y.push_back(sample.target);
  }
  const int64_t length = trainer_test::kLength;
  return torch::nn::functional::cross_entropy(
             model.forward(torch::stack(x)).narrow(1, 0, length - 1).flatten(0, 1),
             torch::stack(y).narrow(1, 1, length - 1).flatten(),
             torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-100).label_smoothing(smoothing))
      .item<double>();
}

TEST_F(Habits, LabelsThatTheModelShiftsAreSmoothedAndCountedAtTheirPlaces) {
  for (const double smoothing : {0.0, 0.1})
    for (const int64_t batch : {8, 2, 1}) {
      auto model = small_gpt();
      const double expected = shifted_loss(*model, smoothing);
      auto a = arguments(1);
      a.per_device_train_batch_size = batch;
      a.gradient_accumulation_steps = 8 / batch;
      a.label_smoothing_factor = smoothing;
      Trainer trainer(model, a, {.train_dataset = make_samples(8), .eval_dataset = make_samples(8)});
      EXPECT_NEAR(trainer.evaluate().at("eval_loss"), expected, 1e-5) << batch << " " << smoothing;
      for (auto& step : trainer.steps()) EXPECT_NEAR(step.loss(), expected, 1e-5) << batch << " " << smoothing;
    }
}

// A loss in bf16 of 2^-2, exactly: times 1003 items it has more digits than bf16.
struct Quarter : torch::nn::Module {
  Quarter() { weight = register_parameter("weight", torch::full({1}, 0.25)); }
  at::Tensor forward(const at::Tensor&, const at::Tensor&) { return weight.sum(); }
  at::Tensor weight;
};

TEST_F(Habits, LossesOf16BitsAreSummedIn32) {
  auto a = arguments(1);
  a.per_device_train_batch_size = 1;
  a.gradient_accumulation_steps = 2;
  a.bf16 = true;
  std::vector<gannet::Example> samples = {{torch::zeros({1003}), torch::zeros({1003}, at::kLong)},
                                          {torch::zeros({999}), torch::zeros({999}, at::kLong)}};
  Trainer trainer(std::make_shared<Quarter>(), a, {.train_dataset = samples});
  for (auto& step : trainer.steps()) EXPECT_NEAR(step.loss(), 0.25, 1e-7);
}

TEST_F(Habits, AModelInDoublePrecisionStaysInIt) {
  torch::manual_seed(3);
  auto model = make_model();
  model->to(at::kDouble);
  double expected = 0;
  {
    torch::NoGradGuard no_grad;
    std::vector<at::Tensor> x, y;
    for (const auto& sample : make_samples(4)) {
      x.push_back(sample.data);
      y.push_back(sample.target);
    }
    expected = torch::nn::functional::cross_entropy(
                   model->logits(torch::stack(x)).flatten(0, 1), torch::stack(y).flatten(),
                   torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-100).label_smoothing(0.1))
                   .item<double>();
  }
  auto a = arguments(1);
  a.label_smoothing_factor = 0.1;
  Trainer trainer(model, a, {.train_dataset = make_samples(4)});
  for (auto& step : trainer.steps()) EXPECT_NEAR(step.loss(), expected, 1e-13);
  for (const auto& parameter : model->parameters()) EXPECT_EQ(parameter.scalar_type(), at::kDouble);
}

struct Counter {
  int64_t by;
  std::shared_ptr<int64_t> count = std::make_shared<int64_t>(0);
  void on_step_end(const gannet::TrainerEvent&) { *count += by; }
  gannet::Value save() const { return gannet::Dict{{"count", *count}}; }
  void load(const gannet::Value& value) { *count = value.at("count").as_int(); }
};

TEST_F(Habits, CallbacksOfOneTypeGetTheirOwnStatesBack) {
  auto a = arguments(2);
  a.save_strategy = "steps";
  a.save_steps = 2;
  const Counter ones{1}, tens{10};
  Trainer(make_model(), a, {.train_dataset = make_samples(16), .callbacks = {ones, tens}}).train();
  const auto state = nlohmann::json::parse(text_of(folder / "run/checkpoint-2/trainer_state.json"));
  ASSERT_EQ(state["stateful_callbacks"].size(), 1u);
  EXPECT_EQ(state["stateful_callbacks"].begin()->size(), 2u);
  a.max_steps = 3;
  a.resume_from_checkpoint = "last";
  const Counter later_ones{1}, later_tens{10};
  Trainer(make_model(), a, {.train_dataset = make_samples(16), .callbacks = {later_ones, later_tens}}).train();
  EXPECT_EQ(*later_ones.count, 3);
  EXPECT_EQ(*later_tens.count, 30);
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

// A stream that gives `samples` in its first epoch, and `later` in each one after.
struct Ending {
  int64_t samples, later;
  std::shared_ptr<int64_t> epochs = std::make_shared<int64_t>(0);
  struct Iterator {
    using iterator_category = std::input_iterator_tag;
    using value_type = gannet::Example;
    using difference_type = std::ptrdiff_t;
    int64_t at;
    gannet::Example operator*() const { return make_samples(1, at)[0]; }
    Iterator& operator++() {
      ++at;
      return *this;
    }
    void operator++(int) { ++at; }
    bool operator==(const Iterator& other) const { return at == other.at; }
  };
  Iterator begin() const {
    ++*epochs;
    return {0};
  }
  Iterator end() const { return {*epochs > 1 ? later : samples}; }
};

TEST_F(Habits, AStreamThatEndsEarlyEndsTheRunAndSaysSo) {
  auto a = arguments(9);
  {
    Trainer trainer(make_model(), a, {.train_dataset = gannet::Dataset<>(Ending{12, 12})});  // read three times
    EXPECT_EQ(trainer.train().global_step, 9);
    EXPECT_THAT(log(), testing::Not(HasSubstr("fewer samples")));
  }
  Trainer trainer(make_model(), a, {.train_dataset = gannet::Dataset<>(Ending{12, 0})});
  EXPECT_EQ(trainer.train().global_step, 3);
  EXPECT_THAT(log(), HasSubstr("training ends after update 3 of 9: train_dataset gave fewer samples"));
  EXPECT_THAT(error_of([&] { Trainer(make_model(), a, {.train_dataset = gannet::Dataset<>(Ending{0, 0})}).train(); }),
              HasSubstr("gave no micro-batch"));
}

TEST_F(Habits, SamplesOfAShortLastBatchAreCountedWhateverTheirType) {
  struct Own {
    at::Tensor x;
  };
  auto a = arguments();
  a.per_device_eval_batch_size = 4;
  std::vector<at::Tensor> rows(7, torch::ones({3}));
  using Model = trainer_test::TokensImpl;
  gannet::TrainerParts<Model, Own> parts;
  parts.eval_dataset = gannet::Dataset<Own>(rows);
  parts.data_collator = gannet::Collate<Own>([](const std::vector<at::Tensor>& all) { return Own{torch::stack(all)}; });
  parts.compute_loss = [](gannet::Engine<Model>&, Own& batch) -> gannet::BatchLoss { return {batch.x.mean(), batch.x, batch.x}; };
  Trainer<Model, Own> trainer(make_model(), a, parts);
  const auto found = trainer.predict();
  EXPECT_EQ(found.num_samples, 7);
  EXPECT_EQ(found.predictions.size(0), 7);
}

TEST_F(Habits, MetricsThatAreNotFiniteAreKeptInCheckpoints) {
  auto a = arguments(2);
  a.eval_strategy = a.save_strategy = "steps";
  a.eval_steps = a.save_steps = 1;
  a.metric_for_best_model = "score";
  const auto score = [](const gannet::EvalPrediction&) -> gannet::Metrics {
    return {{"score", std::nan("")}, {"other", std::numeric_limits<double>::infinity()}};
  };
  Trainer(make_model(), a, {.train_dataset = make_samples(8), .eval_dataset = make_samples(4), .compute_metrics = score}).train();
  const auto state = nlohmann::json::parse(text_of(folder / "run/checkpoint-2/trainer_state.json"));
  EXPECT_TRUE(state["log_history"][0]["eval_score"].is_null());
  EXPECT_TRUE(state["best_metric"].is_null());
  a.max_steps = 3;
  a.resume_from_checkpoint = "last";
  Trainer resumed(make_model(), a, {.train_dataset = make_samples(8), .eval_dataset = make_samples(4), .compute_metrics = score});
  EXPECT_EQ(resumed.train().global_step, 3);
  EXPECT_TRUE(std::isnan(resumed.state().log_history[0].find("eval_score")->as_number()));
}

TEST_F(Habits, OnlyThisRunsCheckpointsAreRotated) {
  auto a = arguments(6);
  a.save_strategy = "steps";
  a.save_steps = 6;
  Trainer(make_model(), a, {.train_dataset = make_samples(40)}).train();
  // Another run, in the same folder, of lower numbers.
  a.max_steps = 3;
  a.save_steps = 1;
  a.save_total_limit = 1;
  Trainer(make_model(), a, {.train_dataset = make_samples(40)}).train();
  EXPECT_THAT(checkpoints(), UnorderedElementsAre("checkpoint-3", "checkpoint-6"));
  // Those that it saved before it was resumed are its own.
  a.max_steps = 5;
  a.save_total_limit = 2;
  a.resume_from_checkpoint = "last";
  Trainer(make_model(), a, {.train_dataset = make_samples(40)}).train();
  EXPECT_THAT(checkpoints(), UnorderedElementsAre("checkpoint-4", "checkpoint-5", "checkpoint-6"));
}

// The best evaluation is that of update 1.
std::function<gannet::Metrics(const gannet::EvalPrediction&)> falling() {
  return [value = 100.0](const gannet::EvalPrediction&) mutable -> gannet::Metrics { return {{"score", --value}}; };
}

class WithBest : public Habits {
 protected:
  TrainingArguments with_best(int64_t steps) const {
    auto a = arguments(steps);
    a.eval_strategy = a.save_strategy = "steps";
    a.eval_steps = a.save_steps = 1;
    a.save_total_limit = 1;
    a.metric_for_best_model = "score";
    a.load_best_model_at_end = true;
    return a;
  }
  gannet::TrainerState train(const TrainingArguments& a) const {
    Trainer trainer(make_model(), a,
                    {.train_dataset = make_samples(40), .eval_dataset = make_samples(4), .compute_metrics = falling()});
    trainer.train();
    return trainer.state();
  }
};

TEST_F(WithBest, TheBestCheckpointIsKnownUnderEveryNameOfItsFolder) {
  auto a = with_best(2);
  train(a);
  fs::create_directory_symlink(folder / "run", folder / "link");
  const std::string names[] = {(folder / "run/").string() + "/", (folder / "link").string(), (folder / "run/../run").string()};
  int64_t steps = 2;
  for (const std::string& name : names) {
    a.output_dir = name;
    a.max_steps = ++steps;
    a.resume_from_checkpoint = "last";
    const auto state = train(a);
    EXPECT_EQ(state.best_global_step, 1);
    EXPECT_THAT(checkpoints(), UnorderedElementsAre("checkpoint-1", "checkpoint-" + std::to_string(steps))) << name;
  }
}

TEST_F(WithBest, AFolderThatWasMovedResumesAndFindsItsBestModel) {
  train(with_best(2));
  fs::rename(folder / "run", folder / "moved");
  auto a = with_best(3);
  a.output_dir = folder / "moved";
  a.resume_from_checkpoint = "last";
  const auto state = train(a);
  EXPECT_EQ(state.global_step, 3);
  EXPECT_EQ(state.best_model_checkpoint, (folder / "moved/checkpoint-1").string());
  EXPECT_THAT(checkpoints("moved"), UnorderedElementsAre("checkpoint-1", "checkpoint-3"));
  EXPECT_THAT(log(), HasSubstr("is now " + (folder / "moved/checkpoint-1").string()));
  // Where it is gone the run says so, and continues.
  fs::remove_all(folder / "moved/checkpoint-1");
  a.max_steps = 4;
  EXPECT_EQ(train(a).best_model_checkpoint, "");
  EXPECT_THAT(log(), HasSubstr("is not there any more"));
}

TEST_F(Habits, FilesThatAKilledRunDidNotWriteAreWrittenByTheNext) {
  auto a = arguments(2);
  a.save_strategy = "steps";
  a.save_steps = 1;
  Trainer(make_model(), a, {.train_dataset = make_samples(8)}).train();
  const fs::path last = folder / "run/checkpoint-2";
  const std::string weights = text_of(last / "model.safetensors"), state = text_of(last / "trainer_state.json");
  for (const char* name : {"model.safetensors", "trainer_state.json", "training_args.json"}) fs::remove(last / name);
  a.resume_from_checkpoint = "last";
  EXPECT_EQ(Trainer(make_model(), a, {.train_dataset = make_samples(8)}).train().global_step, 2);
  EXPECT_THAT(log(), HasSubstr("ended before model.safetensors and trainer_state.json were written"));
  EXPECT_EQ(text_of(last / "model.safetensors"), weights);
  EXPECT_EQ(text_of(last / "trainer_state.json"), state);
  // And where the newest checkpoint itself is not whole, the one before it is taken.
  for (const auto& entry : fs::directory_iterator(last))
    if (entry.path().filename().string().starts_with("rank-")) fs::resize_file(entry.path(), 10);
  Trainer(make_model(), a, {.train_dataset = make_samples(8)}).train();
  EXPECT_THAT(log(), HasSubstr("checkpoint-1 after update 1"));
}

TEST_F(Habits, PredictionsNeedNoLabels) {
  auto samples = make_samples(6);
  for (auto& sample : samples) sample.target = at::Tensor();
  int64_t calls = 0;
  Trainer trainer(make_model(), arguments(1),
                  {.train_dataset = make_samples(8), .compute_metrics = [&](const gannet::EvalPrediction&) -> gannet::Metrics {
                     ++calls;
                     return {};
                   }});
  for (int round = 0; round < 2; ++round) {
    const auto found = trainer.predict(gannet::Dataset<>(samples));
    EXPECT_EQ(found.predictions.size(0), 6);
    EXPECT_EQ(found.num_samples, 6);
    EXPECT_FALSE(found.label_ids.defined());
    EXPECT_EQ(found.metrics.count("test_loss"), 0u);
    EXPECT_EQ(calls, 0);
    if (round == 0) trainer.train();
  }
  EXPECT_EQ(trainer.predict(gannet::Dataset<>(make_samples(6))).metrics.count("test_loss"), 1u);
  EXPECT_EQ(calls, 1);
  Trainer unlabeled(make_model(), arguments(1), {.train_dataset = samples});
  EXPECT_THAT(error_of([&] { unlabeled.train(); }), HasSubstr("train_dataset has no labels"));
}

TEST_F(Habits, ASecondTrainBeginsAnew) {
  auto a = arguments(4);
  int64_t begun = 0, steps = 0;
  struct Count {
    int64_t *begun, *steps;
    void on_train_begin(const gannet::TrainerEvent&) { ++*begun; }
    void on_step_end(const gannet::TrainerEvent&) { ++*steps; }
  };
  auto model = make_model();
  Trainer trainer(model, a, {.train_dataset = make_samples(16), .callbacks = {Count{&begun, &steps}}});
  const auto rates = rates_of(trainer);
  const at::Tensor before = model->embedding->weight.detach().clone();
  EXPECT_EQ(rates_of(trainer), rates);
  EXPECT_FALSE(at::equal(model->embedding->weight, before)) << "the same weights are trained further";
  EXPECT_EQ(trainer.state().global_step, 4);
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(steps, 8);
}

TEST_F(Habits, ASecondTrainBeginsTheConfigsSchedulerAnew) {
  auto a = arguments(3);
  a.deepspeed = R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "scheduler": {"type": "WarmupDecayLR",
    "params": {"total_num_steps": 3, "warmup_num_steps": 2, "warmup_max_lr": 0.01, "warmup_type": "linear"}}})";
  Trainer trainer(make_model(), a, {.train_dataset = make_samples(16)});
  const auto rates = rates_of(trainer);
  EXPECT_EQ(rates_of(trainer), rates);
  EXPECT_GT(rates[2], 0);
}

TEST_F(Habits, AMetricThatThrowsReachesTheCallerAndTheTrainerStaysUsable) {
  for (const bool by_batch : {false, true}) {
    auto a = arguments(3);
    a.eval_strategy = "steps";
    a.eval_steps = 1;
    a.batch_eval_metrics = by_batch;
    auto throws = std::make_shared<bool>(true);
    auto model = make_model();
    Trainer trainer(model, a,
                    {.train_dataset = make_samples(12),
                     .eval_dataset = make_samples(20),
                     .compute_metrics = [throws](const gannet::EvalPrediction&) -> gannet::Metrics {
                       if (*throws) throw std::runtime_error("no such metric");
                       return {{"fine", 1}};
                     }});
    try {
      trainer.train();
      ADD_FAILURE() << "no error";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "no such metric");
    }
    EXPECT_TRUE(model->is_training());
    *throws = false;
    EXPECT_EQ(trainer.evaluate().at("eval_fine"), 1);
    EXPECT_EQ(trainer.train().global_step, 3);
  }
}

// The mean over labels that count, by a division: of none it is 0/0, and so are its gradients.
struct Dividing : trainer_test::TokensImpl {
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets) {
    const at::Tensor counts = targets.ne(-100);
    const at::Tensor losses = torch::nn::functional::cross_entropy(
        logits(tokens).flatten(0, 1), targets.flatten(),
        torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-100).reduction(torch::kNone));
    return losses.sum() / counts.sum();
  }
};

TEST_F(Habits, AMicroBatchWithoutLabelsThatCountAddsNothing) {
  auto samples = make_samples(8);
  for (size_t i = 2; i < 4; ++i) samples[i].target = torch::full_like(samples[i].target, -100);
  auto losses = [&](auto model, int64_t batch, double smoothing, bool by_function) {
    auto a = arguments(1);
    a.per_device_train_batch_size = batch;
    a.gradient_accumulation_steps = 8 / batch;
    a.label_smoothing_factor = smoothing;
    using Model = typename decltype(model)::element_type;
    gannet::TrainerParts<Model> parts{.train_dataset = samples};
    if (by_function)
      parts.compute_loss = [](gannet::Engine<Model>& engine, gannet::Example& one) -> gannet::BatchLoss {
        return engine.forward(one.data, one.target);
      };
    Trainer<Model> trainer(model, a, parts);
    std::vector<double> found;
    for (auto& step : trainer.steps()) {
      EXPECT_TRUE(step.applied());
      found = {step.loss(), step.grad_norm().value()};
    }
    for (const auto& parameter : model->parameters()) EXPECT_TRUE(parameter.isfinite().all().template item<bool>());
    return found;
  };
  const auto dividing = [] {
    torch::manual_seed(3);
    return std::make_shared<Dividing>();
  };
  for (const double smoothing : {0.0, 0.1}) {
    const auto whole = losses(dividing(), 8, smoothing, false);
    for (const auto& cut : {losses(dividing(), 2, smoothing, false), losses(make_model(), 2, smoothing, false)}) {
      ASSERT_EQ(cut.size(), 2u);
      EXPECT_NEAR(cut[0], whole[0], 1e-5);
      EXPECT_NEAR(cut[1], whole[1], 1e-5);
    }
  }
  EXPECT_NEAR(losses(dividing(), 2, 0, true)[0], losses(dividing(), 8, 0, false)[0], 1e-5);
  // A whole update without them changes nothing but by decay, which is off.
  for (auto& sample : samples) sample.target = torch::full_like(sample.target, -100);
  EXPECT_EQ(losses(dividing(), 4, 0, false)[0], 0);
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
  // An "auto" of the config likewise, and a config that contradicts the command is told.
  a.deepspeed = R"({"amp": {"enabled": "auto", "opt_level": "auto"}, "fp16": {"enabled": "auto"}})";
  Trainer filled(make_model(), a, {.train_dataset = make_samples(8)});
  EXPECT_THAT(filled.engine().config_table(), testing::ContainsRegex("amp.opt_level[^\n]*O2"));
  a.deepspeed = R"({"amp": {"enabled": true, "opt_level": "O1"}})";
  Trainer contradicting(make_model(), a, {.train_dataset = make_samples(8)});
  EXPECT_THAT(error_of([&] { contradicting.engine(); }), HasSubstr("fp16_opt_level"));
}

TEST_F(Habits, LabelsMayBeIntegersOfAnySizeOrBooleans) {
  const auto losses = [&](at::ScalarType kind, double smoothing, bool logits_alone) {
    auto samples = make_samples(8);
    for (auto& sample : samples) {
      if (kind == at::kBool || kind == at::kByte) sample.target = sample.target.remainder(2);
      sample.target = sample.target.to(kind);
    }
    auto wide = samples;
    for (auto& sample : wide) sample.target = sample.target.to(at::kLong);
    std::vector<double> found;
    for (const auto& data : {samples, wide}) {
      auto a = arguments(1);
      a.label_smoothing_factor = smoothing;
      Trainer trainer(make_model(), a, {.train_dataset = data, .eval_dataset = data});
      for (auto& step : trainer.steps()) found.push_back(step.loss());
      found.push_back(logits_alone ? trainer.predict().metrics.at("test_loss") : trainer.evaluate().at("eval_loss"));
    }
    EXPECT_EQ(found[0], found[2]) << kind;
    EXPECT_EQ(found[1], found[3]) << kind;
  };
  for (const auto kind : {at::kInt, at::kShort, at::kChar, at::kByte, at::kBool}) {
    losses(kind, 0, false);
    losses(kind, 0.1, true);
  }
  EXPECT_EQ(gannet::count_labels(torch::tensor({156, 1}, at::kByte)), 2);
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
