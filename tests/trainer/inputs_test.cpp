// Inputs that the Trainer gives a model: in the dtype of its parameters, labels to an
// encoder-decoder; impossible combinations are found before the first update.
#include <gannet/models/t5.h>

#include "habits.h"

namespace {

using namespace trainer_test;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Floats : torch::nn::Module {
  Floats() {
    torch::manual_seed(2);
    layer = register_module("layer", torch::nn::Linear(4, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return seen(x), layer(x); }
  void seen(const at::Tensor& x) { dtype = x.scalar_type(); }
  torch::nn::Linear layer{nullptr};
  at::ScalarType dtype = at::kByte;
};

// Labels of floats, in the model's own loss.
struct Regression : Floats {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) { return torch::mse_loss(Floats::forward(x), y); }
};

std::vector<gannet::Example> floats(bool labels_are_floats) {
  std::vector<gannet::Example> samples;
  for (int64_t i = 0; i < 8; ++i)
    samples.emplace_back(torch::sin(torch::arange(4, at::kFloat) + i),
                         labels_are_floats ? torch::cos(torch::arange(3, at::kFloat) + i) : torch::tensor(i % 3, at::kLong));
  return samples;
}

TEST_F(Habits, InputsOfFloatsHaveTheDtypeOfTheParameters) {
  for (const auto& [config, dtype] : {std::pair{"{}", at::kFloat},
                                      {R"({"bf16": {"enabled": true}})", at::kBFloat16},
                                      {R"({"fp16": {"enabled": true, "initial_scale_power": 4}})", at::kHalf}}) {
    SCOPED_TRACE(config);
    auto a = arguments(2);
    a.deepspeed = config;
    auto model = std::make_shared<Floats>();
    Trainer trainer(model, a, {.train_dataset = floats(false), .eval_dataset = floats(false)});
    trainer.train();
    EXPECT_EQ(model->dtype, dtype);
    trainer.evaluate();
    EXPECT_EQ(model->dtype, dtype);
    auto regression = std::make_shared<Regression>();
    Trainer own_loss(regression, a, {.train_dataset = floats(true)});
    own_loss.train();
    EXPECT_EQ(regression->dtype, dtype);
  }
}

gannet::models::T5 small_t5() {
  torch::manual_seed(4);
  gannet::models::T5Config config;
  config.vocab_size = kClasses;
  config.d_model = 8;
  config.d_kv = 4;
  config.d_ff = 12;
  config.num_layers = 1;
  config.num_heads = 2;
  config.dropout_rate = 0;
  return gannet::models::T5(config);
}

TEST_F(Habits, AnEncoderDecoderTrainsWithSmoothingAndMetrics) {
  for (const int64_t batch : {8, 2}) {
    const auto model = small_t5();
    double expected = 0;
    {
      torch::NoGradGuard no_grad;
      std::vector<at::Tensor> x, y;
      for (const auto& sample : make_samples(8)) {
        x.push_back(sample.data);
        y.push_back(sample.target);
      }
      const at::Tensor labels = torch::stack(y);
      expected = torch::nn::functional::cross_entropy(
                     model.ptr()->logits(torch::stack(x), model.ptr()->shifted(labels)).flatten(0, 1), labels.flatten(),
                     torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-100).label_smoothing(0.1))
                     .item<double>();
    }
    auto a = arguments(1);
    a.per_device_train_batch_size = batch;
    a.gradient_accumulation_steps = 8 / batch;
    a.label_smoothing_factor = 0.1;
    Trainer trainer(model, a,
                    {.train_dataset = make_samples(8), .eval_dataset = make_samples(8), .compute_metrics = [](const auto& p) {
                       return gannet::Metrics{{"accuracy", accuracy_of(p)}};
                     }});
    const auto metrics = trainer.evaluate();
    EXPECT_NEAR(metrics.at("eval_loss"), expected, 1e-6);
    EXPECT_GE(metrics.at("eval_accuracy"), 0);
    for (auto& step : trainer.steps()) EXPECT_NEAR(step.loss(), expected, 1e-6);
    auto samples = make_samples(2);
    for (auto& sample : samples) sample.target = at::Tensor();
    EXPECT_THAT(error_of([&] { trainer.predict(gannet::Dataset<>(samples)); }), HasSubstr("this model's decoder reads them"));
  }
}

struct LossAlone : Floats {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) { return torch::cross_entropy_loss(Floats::forward(x), y); }
};
struct WithLogits : Floats {
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor logits = Floats::forward(x);
    return {torch::cross_entropy_loss(logits, y), logits};
  }
};

TEST_F(Habits, AModelThatGivesNoLogitsIsFoundAtConstruction) {
  const auto metrics = [](const gannet::EvalPrediction&) { return gannet::Metrics{{"one", 1}}; };
  auto a = arguments(1);
  Trainer with_metrics(std::make_shared<LossAlone>(), a,
                       {.train_dataset = floats(false), .eval_dataset = floats(false), .compute_metrics = metrics});
  EXPECT_THAT(log(), HasSubstr("compute_metrics gets no predictions"));
  lines.clear();
  a.label_smoothing_factor = 0.1;
  EXPECT_THAT(error_of([&] { Trainer(std::make_shared<LossAlone>(), a, {.train_dataset = floats(false)}); }),
              HasSubstr("smoothing needs its logits"));
  Trainer(std::make_shared<WithLogits>(), a, {.train_dataset = floats(false), .compute_metrics = metrics}).train();
  EXPECT_THAT(log(), Not(HasSubstr("no predictions")));
}

// Labels and inputs that do not fit the model are the program's: no C++ stack, and what to compare.
struct Words : torch::nn::Module {
  at::Tensor forward(const at::Tensor& tokens) { return layer(bytes(tokens)); }
  torch::nn::Embedding bytes = register_module("bytes", torch::nn::Embedding(5, 4));
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(4, 3));
};

TEST_F(Habits, LabelsThatDoNotFitTheModelAreNamedWithTheirValue) {
  const auto told = [&](auto model, const gannet::Example& sample) {
    try {
      Trainer(model, arguments(1), {.train_dataset = std::vector<gannet::Example>(4, sample)}).train();
    } catch (const gannet::Error& error) {
      EXPECT_EQ(error.code(), gannet::ErrorCode::kArgument) << error.what();
      EXPECT_THAT(error.what(), Not(HasSubstr("frame #")));
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const at::Tensor x = torch::ones({4});
  for (const int64_t label : {3, -1})
    EXPECT_THAT(
        told(std::make_shared<Floats>(), {x, torch::tensor(label, at::kLong)}),
        HasSubstr("a label is " + std::to_string(label) +
                  ", and the model's output [4, 3] has 3 classes (labels of shape [4])\n  (classes are numbered from 0 to 2"));
  EXPECT_THAT(told(std::make_shared<Floats>(), {x, torch::tensor({0, 1}, at::kLong)}),
              HasSubstr("logits of the shape [4, 3] for labels of the shape [4, 2]"));
  EXPECT_THAT(
      told(std::make_shared<Floats>(), {x, torch::tensor(1.0F)}),
      AllOf(HasSubstr("labels of floating point have the shape [4], and the model's output [4, 3]"), HasSubstr("are integers")));
  // LibTorch's own words, with the place.
  const at::Tensor zero = torch::tensor(0, at::kLong);
  EXPECT_THAT(told(std::make_shared<Words>(), {torch::tensor({0, 9}, at::kLong), torch::tensor({0, 0}, at::kLong)}),
              HasSubstr("update 1, forward of the model: LibTorch: index out of range"));
  EXPECT_THAT(told(std::make_shared<Floats>(), {torch::ones({5}), zero}),
              AllOf(HasSubstr("update 1, forward of the model: LibTorch: "), HasSubstr("mat1 and mat2")));
  EXPECT_THAT(told(std::make_shared<LossAlone>(), {x, torch::tensor(7, at::kLong)}),
              HasSubstr("LibTorch: Target 7 is out of bounds"));
  // Also in an evaluation.
  Trainer trainer(std::make_shared<Floats>(), arguments(1),
                  {.train_dataset = floats(false), .eval_dataset = std::vector<gannet::Example>{{torch::ones({5}), zero}}});
  EXPECT_THAT(error_of([&] { trainer.evaluate(); }), AllOf(HasSubstr("eval, batch 1: LibTorch: "), HasSubstr("mat1 and mat2")));
}

}  // namespace
