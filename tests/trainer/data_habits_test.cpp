// Habits of Hugging Face Trainer users with data: labels that the model shifts or that are missing,
// dtypes, streams that end early, user functions that throw.
#include <gannet/models/gpt2.h>

#include <csignal>

#include "habits.h"

namespace {

using namespace trainer_test;
using testing::HasSubstr;

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
  auto by_batch = arguments(1);
  by_batch.batch_eval_metrics = true;
  Trainer batches(make_model(), by_batch, {.compute_metrics = [&](const gannet::EvalPrediction&) -> gannet::Metrics {
                    ++calls;
                    throw std::runtime_error("there are labels");
                  }});
  batches.predict(gannet::Dataset<>(samples));
  EXPECT_EQ(calls, 1);
  Trainer unlabeled(make_model(), arguments(1), {.train_dataset = samples});
  EXPECT_THAT(error_of([&] { unlabeled.train(); }), HasSubstr("train_dataset has no labels"));
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

TEST_F(Habits, AnEmptyEvaluationSetIsFoundBeforeTraining) {
  const auto found = [&](const auto& change) {
    auto a = arguments(4);
    change(a);
    return error_of([&] {
      Trainer trainer(make_model(), a, {.train_dataset = make_samples(16), .eval_dataset = std::vector<gannet::Example>()});
    });
  };
  EXPECT_THAT(found([](auto& a) { a.eval_strategy = "epoch"; }), HasSubstr("eval_dataset is empty, and eval_strategy asks"));
  EXPECT_THAT(found([](auto& a) { a.eval_on_start = true; }), HasSubstr("eval_dataset is empty, and eval_on_start asks"));
  EXPECT_THAT(found([](auto& a) { a.do_eval = true; }), HasSubstr("eval_dataset is empty, and do_eval asks"));
  EXPECT_EQ(found([](auto&) {}), "no error");
}

// Where the process is not to end, it is an error; after a train() that answered the signal, the program may evaluate.
TEST_F(Habits, ASignalInAnEvaluationIsAnErrorWhereTheProgramStays) {
  auto a = arguments(4);
  a.stop = std::make_shared<gannet::StopSignals>();
  Trainer trainer(make_model(), a,
                  {.train_dataset = make_samples(16), .eval_dataset = make_samples(16), .exit_when_stopped = false});
  EXPECT_NO_THROW(trainer.evaluate());
  std::raise(SIGTERM);
  try {
    trainer.predict();
    FAIL() << "the signal had no effect";
  } catch (const gannet::Error& error) {
    EXPECT_EQ(error.code(), gannet::ErrorCode::kStopped);
    EXPECT_EQ(error.exit_code(), 85);
  }
  EXPECT_TRUE(trainer.train().stopped);
  EXPECT_NO_THROW(trainer.evaluate());
}

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
  // A whole epoch without them is an error (label_count_test.cpp).
  for (auto& sample : samples) sample.target = torch::full_like(sample.target, -100);
  EXPECT_THAT(error_of([&] { losses(dividing(), 4, 0, false); }), HasSubstr("no label of train_dataset counts"));
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

}  // namespace
