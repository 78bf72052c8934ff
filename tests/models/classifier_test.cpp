// BERT's head for sequence classification: logits, losses and gradients are those of transformers; it trains, and is saved under
// the names that transformers reads.
#include <gannet/gannet.h>
#include <gannet/models/bert_classifier.h>
#include <gannet/trainer.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "models/fixture.h"

namespace classifier_test {
namespace {

using at::Tensor;
using fixture::Expected;
using gannet::models::BertConfig;
using gannet::models::BertForSequenceClassification;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

double farthest(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(Classifier, ComputesWhatTransformersDoes) {
  for (const char* name : {"bert_class_single", "bert_class_number", "bert_class_multi"}) {
    SCOPED_TRACE(name);
    const auto model = gannet::from_pretrained<BertForSequenceClassification>(fixture::folder(name), {.strict = true});
    model->eval();
    const Expected expected(name);
    const Tensor tokens = expected["tokens"], mask = expected["mask"], types = expected["types"], labels = expected["labels"];
    EXPECT_LT(farthest(model->logits(tokens, mask, types), expected["logits"]), 1e-5);
    const Tensor loss = model->forward(tokens, labels, mask, types);
    EXPECT_NEAR(loss.item<double>(), expected["loss"].item<double>(), 1e-5);
    loss.backward();
    for (const auto& entry : model->named_parameters())
      EXPECT_LT(farthest(entry.value().grad(), expected["grad." + entry.key()]), 1e-5) << entry.key();
  }
}

TEST(Classifier, TheKindOfLabelsDecidesWhereTheConfigDoesNot) {
  const auto model = gannet::from_pretrained<BertForSequenceClassification>(fixture::folder("bert_class_single"),
                                                                            {.model_overwrite = {{"problem_type", nullptr}}});
  const Tensor logits = torch::tensor({{0.5, -1.0, 2.0}, {0.1, 0.2, 0.3}});
  EXPECT_TRUE(at::allclose(model->loss_of_logits(logits, torch::tensor({2, 0})),
                           torch::cross_entropy_loss(logits, torch::tensor({2, 0}))));
  const Tensor several = torch::tensor({{1.0, 0.0, 1.0}, {0.0, 0.0, 1.0}});
  EXPECT_TRUE(at::allclose(model->loss_of_logits(logits, several), torch::binary_cross_entropy_with_logits(logits, several)));
  EXPECT_TRUE(at::allclose(model->loss_of_logits(logits, torch::tensor({-100, 1})),
                           torch::cross_entropy_loss(logits.narrow(0, 1, 1), torch::tensor({1}))));
  auto config = model->config();
  config.num_labels = 2;
  config.problem_type = "regression";
  const Tensor two = torch::tensor({{0.5, 1.0}, {0.0, 2.0}});
  EXPECT_TRUE(at::allclose(BertForSequenceClassification(config)->loss_of_logits(logits.narrow(1, 0, 2), two),
                           torch::mse_loss(logits.narrow(1, 0, 2), two)));
}

TEST(Classifier, TheNumberOfLabelsIsTheFoldersOrTheOneThatIsGiven) {
  const auto config_of = [](const gannet::Dict& values) { return BertConfig::from(gannet::ModelConfig(values)); };
  EXPECT_EQ(config_of({}).num_labels, 2);
  const gannet::Dict names{{"0", "a"}, {"1", "b"}, {"2", "c"}};
  EXPECT_EQ(config_of({{"id2label", names}}).num_labels, 3);
  EXPECT_EQ(config_of({{"id2label", names}, {"num_labels", 5}}).num_labels, 5);
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const gannet::Error& error) {
    EXPECT_EQ(error.code(), gannet::ErrorCode::kArgument);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Classifier, LabelsThatDoNotFitAreNamed) {
  const auto model = gannet::from_pretrained<BertForSequenceClassification>(fixture::folder("bert_class_single"));
  const Tensor tokens = torch::tensor({{5, 6, 7}, {8, 9, 10}});
  EXPECT_THAT(error_of([&] { model->forward(tokens, torch::tensor({1, 3})); }),
              testing::AllOf(HasSubstr("a label is 3, and num_labels is 3"), HasSubstr("model_overwrite")));
  EXPECT_THAT(error_of([&] { model->forward(tokens, torch::tensor({1, -1})); }), HasSubstr("a label is -1"));
  EXPECT_THAT(error_of([&] { model->forward(tokens, tokens); }), HasSubstr("labels [2, 3] for logits [2, 3]"));
  EXPECT_THAT(error_of([&] { model->forward(tokens, torch::tensor({1.0, 2.0})); }), HasSubstr("labels of floating point"));
  auto config = model->config();
  config.problem_type = "several";
  EXPECT_THAT(error_of([&] { BertForSequenceClassification{config}; }), HasSubstr("problem_type is 'several'"));
  config.problem_type = "single_label_classification", config.num_labels = 1;
  EXPECT_THAT(error_of([&] { BertForSequenceClassification{config}; }), HasSubstr("among 1 class"));
}

// A pretrained model has no such head: the rest is loaded, and the log reports the new head.
TEST(Classifier, AFolderWithoutTheHeadSaysThatItIsNew) {
  std::vector<std::string> lines;
  gannet::set_log_sink([&](gannet::LogLevel, const std::string& line) { lines.push_back(line); });
  gannet::PretrainedReceipt receipt;
  const auto model = gannet::from_pretrained<BertForSequenceClassification>(fixture::folder("bert"),
                                                                            {.model_overwrite = {{"num_labels", 3}}}, &receipt);
  gannet::set_log_sink({});
  EXPECT_THAT(receipt.missing,
              ElementsAre("bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "classifier.bias"));
  EXPECT_THAT(receipt.unexpected, IsEmpty());
  EXPECT_THAT(lines, testing::Contains(testing::AllOf(HasSubstr("initial values stay"), HasSubstr("classifier.weight"))));
  EXPECT_EQ(model->forward(torch::tensor({{5, 6}})).sizes(), (std::vector<int64_t>{1, 3}));
}

// The saved file has the names of transformers' own, and the same values come back.
TEST(Classifier, TrainsAndIsSavedUnderTransformersNames) {
  const std::string name = "bert_class_single";
  const Expected expected(name);
  auto model = gannet::from_pretrained<BertForSequenceClassification>(fixture::folder(name));
  auto engine = gannet::initialize(model, {.config = gannet::Config(R"({"train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})")})
                    .engine;
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    const Tensor loss = engine->forward(expected["tokens"], expected["labels"], expected["mask"], expected["types"]);
    engine->backward(loss);
    engine->step();
    (step == 0 ? first : last) = loss.item<double>();
  }
  EXPECT_LT(last, first / 4);
  char folder[] = "/tmp/gannet-classifier-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  engine->save_16bit_model(folder);
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") path = entry.path();
  const auto saved = gannet::load_safetensors(path);
  const auto original = gannet::load_safetensors(fixture::folder(name) + "/model.safetensors");
  EXPECT_EQ(saved.size(), original.size());
  for (const auto& [key, tensor] : original) EXPECT_TRUE(saved.contains(key)) << key;
  std::filesystem::copy(fixture::folder(name) + "/config.json", std::string(folder) + "/config.json");
  const auto again = gannet::from_pretrained<BertForSequenceClassification>(folder, {.strict = true});
  model->eval();
  again->eval();
  EXPECT_TRUE(at::equal(again->forward(expected["tokens"]), model->forward(expected["tokens"])));
  std::filesystem::remove_all(folder);
}

// As a batch of the Trainer's default: a class, or several, of each text.
std::vector<gannet::Example> samples_of(const Tensor& labels) {
  const Tensor tokens = torch::arange(5, 5 + 7 * labels.size(0)).remainder(55).view({labels.size(0), 7}) + 2;
  std::vector<gannet::Example> samples;
  for (int64_t i = 0; i < labels.size(0); ++i) samples.emplace_back(tokens[i], labels[i]);
  return samples;
}

TEST(Classifier, TheTrainerSmoothsItsLabelsAndMeasuresItsLogits) {
  gannet::TrainingArguments arguments;
  arguments.output_dir = (std::filesystem::temp_directory_path() / ("gannet_classifier_" + std::to_string(getpid()))).string();
  arguments.per_device_train_batch_size = arguments.per_device_eval_batch_size = 3;
  arguments.max_steps = 30;
  arguments.learning_rate = 0.01;
  arguments.label_smoothing_factor = 0.1;
  arguments.save_strategy = "no";
  const auto samples = samples_of(torch::tensor({0, 1, 2, 2, 1, 0}));
  auto model = gannet::from_pretrained<BertForSequenceClassification>(fixture::folder("bert_class_single"));
  gannet::Trainer trainer(
      model, arguments,
      {.train_dataset = samples, .eval_dataset = samples, .compute_metrics = [](const gannet::EvalPrediction& prediction) {
         const Tensor right = prediction.predictions.argmax(-1).eq(prediction.label_ids);
         return gannet::Metrics{{"accuracy", right.to(at::kDouble).mean().item<double>()}};
       }});
  trainer.train();
  EXPECT_EQ(trainer.evaluate().at("eval_accuracy"), 1);
  std::filesystem::remove_all(arguments.output_dir);
}

// With metrics the Trainer asks for logits: their loss is the model's own, for labels of any kind.
TEST(Classifier, TheTrainerEvaluatesByTheModelsLoss) {
  gannet::TrainingArguments arguments;
  arguments.output_dir = (std::filesystem::temp_directory_path() / ("gannet_classifier_" + std::to_string(getpid()))).string();
  arguments.per_device_eval_batch_size = 2;
  const Tensor labels = torch::tensor({{1.0, 0.0, 1.0, 1.0}, {0.0, 1.0, 0.0, 0.0}, {1.0, 1.0, 0.0, 0.0}});
  const auto samples = samples_of(labels);
  auto model = gannet::from_pretrained<BertForSequenceClassification>(fixture::folder("bert_class_multi"));
  std::vector<Tensor> tokens;
  for (const auto& sample : samples) tokens.push_back(sample.data);
  model->eval();
  const double expected = model->forward(torch::stack(tokens), labels).item<double>();
  for (const bool has_metrics : {false, true}) {
    gannet::TrainerParts<gannet::models::BertForSequenceClassificationImpl> parts{.train_dataset = samples,
                                                                                  .eval_dataset = samples};
    if (has_metrics) parts.compute_metrics = [](const gannet::EvalPrediction&) { return gannet::Metrics(); };
    gannet::Trainer trainer(model, arguments, parts);
    EXPECT_NEAR(trainer.evaluate().at("eval_loss"), expected, 1e-6) << has_metrics;
  }
  std::filesystem::remove_all(arguments.output_dir);
}

}  // namespace
}  // namespace classifier_test
