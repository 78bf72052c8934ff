// The Trainer on one rank, against an obvious loop of plain LibTorch.
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

struct Curve {
  std::vector<double> losses, norms, rates;
  at::Tensor weight;
};

// Updates of `samples_per_update` samples, the last of an epoch shorter; AdamW with decay only of
// matrices, linear rate with warm-up.
Curve reference(int64_t samples, int64_t samples_per_update, int64_t epochs, double smoothing, double decay, int64_t warmup) {
  auto model = make_model();
  const auto data = make_samples(samples);
  std::vector<at::Tensor> decayed, rest;
  for (const auto& p : model->named_parameters())
    (p.key().find("bias") != std::string::npos || p.key().find("norm") != std::string::npos ? rest : decayed)
        .push_back(p.value());
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(decayed,
                      std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(0.01).weight_decay(decay)));
  groups.emplace_back(rest, std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(0.01).weight_decay(0)));
  torch::optim::AdamW optimizer(groups, torch::optim::AdamWOptions(0.01));
  Curve curve;
  const int64_t per_epoch = (samples + samples_per_update - 1) / samples_per_update, total = per_epoch * epochs;
  for (int64_t step = 0; step < total; ++step) {
    const double rate = 0.01 * (step < warmup ? double(step) / warmup : double(total - step) / double(total - warmup));
    for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
    const int64_t begin = step % per_epoch * samples_per_update;
    std::vector<at::Tensor> x, y;
    for (int64_t i = begin; i < std::min(begin + samples_per_update, samples); ++i) {
      x.push_back(data[i].data);
      y.push_back(data[i].target);
    }
    optimizer.zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(
        model->logits(torch::stack(x)).flatten(0, 1), torch::stack(y).flatten(),
        torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-100).label_smoothing(smoothing));
    loss.backward();
    curve.norms.push_back(torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0));
    curve.losses.push_back(loss.item<double>());
    curve.rates.push_back(rate);
    optimizer.step();
  }
  curve.weight = model->embedding->weight.detach().clone();
  return curve;
}

TEST(Trainer, AnUpdateIsThatOfItsWholeBatchHoweverCut) {
  // 22 samples in updates of 8: the last one of an epoch has 6, in fewer micro-batches.
  for (const double smoothing : {0.0, 0.1}) {
    const Curve expected = reference(22, 8, 2, smoothing, 0.1, 2);
    for (const auto& [batch, accumulation] : {std::pair{8, 1}, {4, 2}, {2, 4}, {1, 8}}) {
      SCOPED_TRACE(std::to_string(batch) + " x " + std::to_string(accumulation));
      Removed folder;
      auto a = arguments_for(folder.path, batch, accumulation);
      a.label_smoothing_factor = smoothing;
      a.weight_decay = 0.1;
      a.warmup_steps = 2;
      auto model = make_model();
      Trainer trainer(model, a, {.train_dataset = make_samples(22)});
      Curve found;
      for (auto& step : trainer.steps()) {
        found.losses.push_back(step.loss());
        found.norms.push_back(step.grad_norm().value());
        found.rates.push_back(step.learning_rate());
      }
      expect_near(found.losses, expected.losses, 1e-5);
      expect_near(found.norms, expected.norms, 1e-5);
      expect_near(found.rates, expected.rates, 1e-12);
      EXPECT_LT((model->embedding->weight - expected.weight).abs().max().item<double>(), 2e-5);
    }
  }
}

struct Recorder {
  std::vector<std::string>* events;
#define RECORD(name) \
  void on_##name(const gannet::TrainerEvent&) { events->push_back(#name); }
  RECORD(init_end)
  RECORD(train_begin)
  RECORD(epoch_begin)
  RECORD(step_begin)
  RECORD(substep_end)
  RECORD(pre_optimizer_step)
  RECORD(optimizer_step)
  RECORD(step_end)
  RECORD(log)
  RECORD(evaluate)
  RECORD(prediction_step)
  RECORD(save)
  RECORD(epoch_end)
  RECORD(train_end)
#undef RECORD
};

TEST(Trainer, EventsComeInHuggingFacesOrder) {
  Removed folder;
  auto a = arguments_for(folder.path);
  a.max_steps = 1;
  a.logging_steps = 1;
  a.eval_strategy = "steps";
  a.save_strategy = "steps";
  std::vector<std::string> events;
  Trainer trainer(make_model(), a,
                  {.train_dataset = make_samples(8), .eval_dataset = make_samples(4), .callbacks = {Recorder{&events}}});
  trainer.train();
  EXPECT_THAT(events, ElementsAre("init_end", "train_begin", "epoch_begin", "step_begin", "substep_end", "pre_optimizer_step",
                                  "optimizer_step", "step_end", "log", "prediction_step", "log", "evaluate", "save", "epoch_end",
                                  "log", "train_end"));
}

std::vector<std::pair<int64_t, std::string>> history(const gannet::TrainerState& state) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const auto& entry : state.log_history)
    for (const char* name : {"loss", "eval_loss", "train_loss"})
      if (entry.find(name)) found.emplace_back(entry.find("step")->as_int(), name);
  return found;
}

TEST(Trainer, StrategiesByStepsFractionsAndEpochsLogEvaluateAndSave) {
  Removed folder;
  auto a = arguments_for(folder.path);  // 20 samples in updates of 8: 3 updates an epoch, 6 in all
  a.logging_steps = 0.3;                // every 2nd, rounded up
  a.logging_first_step = true;
  a.eval_strategy = "epoch";
  a.eval_delay = 1.5;
  a.save_strategy = "epoch";
  auto trainer = Trainer(make_model(), a, {.train_dataset = make_samples(20), .eval_dataset = make_samples(6)});
  trainer.train();
  using P = std::pair<int64_t, std::string>;
  EXPECT_THAT(history(trainer.state()),
              ElementsAre(P{1, "loss"}, P{2, "loss"}, P{4, "loss"}, P{6, "loss"}, P{6, "eval_loss"}, P{6, "train_loss"}));
  EXPECT_TRUE(fs::exists(folder.path + "/checkpoint-3/trainer_state.json"));
  EXPECT_TRUE(fs::exists(folder.path + "/checkpoint-6/model.safetensors"));
  std::ifstream in(folder.path + "/checkpoint-6/trainer_state.json");
  const auto state = nlohmann::json::parse(in);
  EXPECT_EQ(state["global_step"], 6);
  EXPECT_EQ(state["epoch"], 2.0);
  EXPECT_EQ(state["max_steps"], 6);
  EXPECT_EQ(state["logging_steps"], 2);
}

// Accuracy as the test wants it: a list of values, one for each evaluation.
std::function<gannet::Metrics(const gannet::EvalPrediction&)> scripted(std::vector<double> values) {
  return
      [values, at = size_t{0}](const gannet::EvalPrediction&) mutable -> gannet::Metrics { return {{"score", values.at(at++)}}; };
}

TEST(Trainer, TheBestModelIsKeptAndLoadedAndStopsEarly) {
  Removed folder;
  auto a = arguments_for(folder.path);
  a.max_steps = 8;
  a.eval_strategy = a.save_strategy = "steps";
  a.eval_steps = a.save_steps = 1;
  a.save_total_limit = 1;
  a.load_best_model_at_end = true;
  a.metric_for_best_model = "score";
  auto model = make_model();
  at::Tensor best;
  struct Keep {
    at::Tensor* best;
    std::shared_ptr<trainer_test::TokensImpl> model;
    void on_step_end(const gannet::TrainerEvent& event) {
      if (event.state.global_step == 2) *best = model->embedding->weight.detach().clone();
    }
  };
  Trainer trainer(model, a,
                  {.train_dataset = make_samples(20),
                   .eval_dataset = make_samples(6),
                   .compute_metrics = scripted({1, 3, 2, 3, 2.5, 9, 9, 9}),
                   .callbacks = {gannet::EarlyStopping{.patience = 3}, Keep{&best, model}}});
  const auto output = trainer.train();
  EXPECT_EQ(output.global_step, 5);  // 3 evaluations without a better one after the second
  EXPECT_EQ(trainer.state().best_metric, 3);
  EXPECT_EQ(trainer.state().best_global_step, 2);
  EXPECT_EQ(trainer.state().best_model_checkpoint, folder.path + "/checkpoint-2");
  EXPECT_TRUE(fs::exists(folder.path + "/checkpoint-2"));
  EXPECT_TRUE(at::equal(model->embedding->weight, best));
  EXPECT_FALSE(fs::exists(folder.path + "/checkpoint-4"));
}

TEST(Trainer, SaveStrategyBestSavesAtEachNewBestOne) {
  Removed folder;
  auto a = arguments_for(folder.path);
  a.max_steps = 4;
  a.eval_strategy = "steps";
  a.eval_steps = 1;
  a.save_strategy = "best";
  a.metric_for_best_model = "score";
  a.greater_is_better = false;
  Trainer trainer(
      make_model(), a,
      {.train_dataset = make_samples(40), .eval_dataset = make_samples(6), .compute_metrics = scripted({4, 5, 3, 6})});
  trainer.train();
  std::vector<std::string> saved;
  for (const auto& entry : fs::directory_iterator(folder.path))
    if (entry.path().filename().string().starts_with("checkpoint-")) saved.push_back(entry.path().filename());
  EXPECT_THAT(saved, testing::UnorderedElementsAre("checkpoint-1", "checkpoint-3"));
}

TEST(Trainer, AnEvaluationIsTheMeanOverTheLabelsThatCountWhateverItsBatches) {
  auto model = make_model();
  const auto samples = make_samples(13, 100);
  double expected = 0;
  {
    torch::NoGradGuard no_grad;
    std::vector<at::Tensor> x, y;
    for (const auto& sample : samples) {
      x.push_back(sample.data);
      y.push_back(sample.target);
    }
    expected = model->forward(torch::stack(x), torch::stack(y)).item<double>();
  }
  for (const int64_t batch : {1, 4, 13}) {
    Removed folder;
    auto a = arguments_for(folder.path);
    a.per_device_eval_batch_size = batch;
    Trainer trainer(model, a, {.train_dataset = make_samples(8), .eval_dataset = samples});
    const auto metrics = trainer.evaluate();
    EXPECT_NEAR(metrics.at("eval_loss"), expected, 1e-6);
    const auto predicted = trainer.predict();
    ASSERT_EQ(predicted.predictions.size(0), 13);
    EXPECT_TRUE(at::equal(predicted.label_ids[7], samples[7].target));
    EXPECT_EQ(predicted.num_samples, 13);
  }
}

TEST(Trainer, MetricsByBatchSeeEachBatchAndTheEnd) {
  Removed folder;
  auto a = arguments_for(folder.path);
  a.per_device_eval_batch_size = 5;
  a.batch_eval_metrics = true;
  int64_t seen = 0, calls = 0;
  Trainer trainer(make_model(), a,
                  {.train_dataset = make_samples(8),
                   .eval_dataset = make_samples(13),
                   .compute_metrics = [&](const gannet::EvalPrediction& p) -> gannet::Metrics {
                     ++calls;
                     if (p.is_last_call) return {{"seen", double(seen)}};
                     seen += p.predictions.size(0);
                     return {};
                   }});
  EXPECT_EQ(trainer.evaluate().at("eval_seen"), 13);
  EXPECT_EQ(calls, 4);
}

TEST(Trainer, TheLossOfTheProgramsOwnIsWeighedByItsItems) {
  // A loss that is a mean over samples, of micro-batches of 3 and 1: the update is the mean over 4.
  Removed folder;
  auto a = arguments_for(folder.path, 3, 2);
  a.max_steps = 1;
  using Model = trainer_test::TokensImpl;
  gannet::TrainerParts<Model> parts{.train_dataset = make_samples(4)};
  std::vector<double> sums;
  parts.compute_loss = [&](gannet::Engine<Model>& engine, gannet::Example& batch) -> gannet::BatchLoss {
    const at::Tensor mean = engine.call([&](Model& model) { return model.logits(batch.data); }).square().mean({1, 2}).mean();
    sums.push_back(mean.item<double>() * batch.data.size(0));
    return mean;
  };
  parts.count_items = [](const gannet::Example& batch) { return double(batch.data.size(0)); };
  Trainer trainer(make_model(), a, parts);
  for (auto& step : trainer.steps()) EXPECT_NEAR(step.loss(), (sums.at(0) + sums.at(1)) / 4, 1e-6);
}

std::string mistake(const std::function<void()>& body) {
  try {
    body();
  } catch (const gannet::Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Trainer, ASavedWeightsOnlyCheckpointHoldsTheModel) {
  Removed folder;
  auto a = arguments_for(folder.path);
  a.max_steps = 2;
  a.save_strategy = "steps";
  a.save_steps = 2;
  a.save_only_model = true;
  auto model = make_model();
  Trainer trainer(model, a, {.train_dataset = make_samples(16)});
  trainer.train();
  auto other = std::make_shared<trainer_test::TokensImpl>();
  gannet::load_weights(*other, folder.path + "/checkpoint-2/model.safetensors");
  EXPECT_TRUE(at::equal(other->embedding->weight, model->embedding->weight));
}

// The log of a Trainer's engine, without training.
std::string log_of(const TrainingArguments& a) {
  std::string text;
  gannet::set_log_sink([&](gannet::LogLevel level, const std::string& line) {
    if (level >= gannet::LogLevel::kInfo) text += line + "\n";
  });
  Trainer trainer(make_model(), a, {.train_dataset = make_samples(20)});
  trainer.engine();
  gannet::set_log_sink({});
  return text;
}

}  // namespace
