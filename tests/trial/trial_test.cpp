// The runner on one rank: order, lengths, metrics, the best checkpoint, resume.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "trial_fixture.h"

namespace {

namespace fs = std::filesystem;
using gannet::BatchMetrics;
using gannet::Dict;
using gannet::TrialLength;
using launched::Folder;
using launched::text_of;
using trial_test::hooks;
using trial_test::TrialTest;

TEST_F(TrialTest, TrainsReportsValidatesAndSaves) {
  Folder folder("whole");
  auto all = settings(folder);
  all.max_length = TrialLength::epochs(2);  // 12 samples in micro-batches of 2: 6 batches
  all.report_period = 4;
  const auto result = gannet::run_trial<trial_test::SmallTrial>(all);
  EXPECT_EQ(result.batches, 12);
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(result.resumed_at, 0);
  ASSERT_TRUE(result.best_metric);
  const auto lines = lines_of(folder);
  ASSERT_EQ(lines.size(), 5u);
  const std::vector<std::string> begins = {"training", "validation", "training", "training", "validation"};
  const std::vector<int> batches = {4, 6, 8, 12, 12};
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_THAT(lines[i], testing::HasSubstr(begins[i]));
    EXPECT_THAT(lines[i], testing::ContainsRegex("\"batches\": ?" + std::to_string(batches[i]) + ","));
  }
  EXPECT_THAT(lines[1], testing::ContainsRegex("\"epochs\": ?1.0,"));
  EXPECT_THAT(lines[0], testing::ContainsRegex("\"batch\": ?1.5"));
  EXPECT_THAT(checkpoints_in(folder), testing::Contains("batch-12"));
  EXPECT_THAT(checkpoints_in(folder), testing::Contains("batch-" + std::to_string(result.best_batch)));
}

// The trial against the same loop written by hand over the public API.
TEST_F(TrialTest, IsTheLoopThatAProgramWouldWrite) {
  Folder folder("hand");
  auto all = settings(folder, {{"dropout", 0.0}, {"overwrite_deepspeed_args", Dict{{"gradient_accumulation_steps", 2}}}});
  double last = 0;
  hooks.train_metrics = [&](const gannet::Example&, const at::Tensor& loss) {
    last = loss.item<double>();
    return std::nullopt;
  };
  all.max_length = TrialLength::batches(5);
  gannet::run_trial<trial_test::SmallTrial>(all);

  torch::manual_seed(0);
  Dict config = trial_test::small_config(2, 2);
  auto made = gannet::initialize(trial_test::Net(4, 0.0), {.config = config, .training_data = trial_test::samples(12)});
  gannet::RepeatingLoader endless(made.loader);
  double by_hand = 0;
  for (int micro_batch = 0; micro_batch < 10; ++micro_batch) {
    auto& batch = endless.next();
    const at::Tensor loss = torch::mse_loss(made.engine->forward(batch.data), batch.target);
    made.engine->backward(loss);
    made.engine->step();
    by_hand = loss.item<double>();
  }
  EXPECT_EQ(last, by_hand);
}

TEST_F(TrialTest, ResumesWhereItsFolderEndsAndDoesNothingMoreWhenItIsOver) {
  Folder whole("uncut"), cut("cut");
  auto all = settings(whole);
  all.max_length = TrialLength::batches(9);
  all.report_period = 3;
  all.validation_period = TrialLength::batches(3);
  gannet::run_trial<trial_test::SmallTrial>(all);
  auto first = all;
  first.output_dir = (cut.path / "out").string();
  first.max_length = TrialLength::batches(6);
  gannet::run_trial<trial_test::SmallTrial>(first);
  first.max_length = TrialLength::batches(9);
  int64_t initial = -1, calls = 0;
  hooks.on_batch = [&](gannet::TrialContext& context) {
    initial = context.get_initial_batch();
    ++calls;
  };
  const auto result = gannet::run_trial<trial_test::SmallTrial>(first);
  EXPECT_EQ(result.resumed_at, 6);
  EXPECT_EQ(initial, 6);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(lines_of(cut), lines_of(whole));
  const auto again = gannet::run_trial<trial_test::SmallTrial>(first);
  EXPECT_EQ(again.batches, 9);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(lines_of(cut), lines_of(whole));
}

TEST_F(TrialTest, EpochsBeginAndEndWhereTheLoaderSays) {
  struct Seen {
    std::vector<int64_t> starts, ends, epochs;
    int64_t calls = 0;
  };
  const auto seen = [&](int64_t samples, const char* leftover, TrialLength length, int64_t epoch_length = 0) {
    Folder folder(std::string("epochs_") + leftover + std::to_string(samples));
    auto all = settings(folder, {{"samples", samples},
                                 {"overwrite_deepspeed_args", Dict{{"gradient_accumulation_steps", 2},
                                                                   {"gannet", Dict{{"leftover_micro_batches", leftover}}}}}});
    all.max_length = length;
    all.epoch_length = epoch_length;
    Seen found;
    hooks.on_batch = [&](gannet::TrialContext& context) {
      ++found.calls;
      const int64_t batch = context.current_train_batch();
      if (context.is_epoch_start() && (found.starts.empty() || found.starts.back() != batch)) found.starts.push_back(batch);
      if (context.is_epoch_end() && (found.ends.empty() || found.ends.back() != batch)) found.ends.push_back(batch);
      if (found.epochs.size() == static_cast<size_t>(batch)) found.epochs.push_back(context.current_train_epoch());
    };
    gannet::run_trial<trial_test::SmallTrial>(all);
    return found;
  };
  using testing::ElementsAre;
  // 5 micro-batches an epoch, 2 a batch.
  const Seen carried = seen(10, "carry", TrialLength::epochs(2));
  EXPECT_THAT(carried.epochs, ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(carried.starts, ElementsAre(0, 3));
  EXPECT_THAT(carried.ends, ElementsAre(2, 4));
  EXPECT_EQ(carried.calls, 10);
  const Seen dropped = seen(10, "drop", TrialLength::epochs(2));
  EXPECT_THAT(dropped.epochs, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(dropped.ends, ElementsAre(1, 3));
  const Seen stepped = seen(10, "step", TrialLength::epochs(2));
  EXPECT_THAT(stepped.epochs, ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(stepped.ends, ElementsAre(2, 5));
  EXPECT_EQ(stepped.calls, 10);
  const Seen counted = seen(10, "carry", TrialLength::epochs(2), 2);
  EXPECT_THAT(counted.epochs, ElementsAre(0, 0, 1, 1));
}

TEST_F(TrialTest, AnAverageIsWeightedBySamples) {
  Folder folder("weights");
  auto all = settings(folder);
  all.max_length = TrialLength::batches(1);
  // 7 validation samples in batches of 2: the last one has a single sample.
  std::vector<double> values = {1, 2, 3, 10};
  size_t at = 0;
  hooks.evaluation_metrics = [&](const gannet::Example&, const at::Tensor&) { return BatchMetrics{{"loss", values[at++]}}; };
  const auto by_batch = gannet::run_trial<trial_test::SmallTrial>(all);
  EXPECT_DOUBLE_EQ(*by_batch.best_metric, (2 * 1 + 2 * 2 + 2 * 3 + 10) / 7.0);
  Folder other("said");
  all.output_dir = (other.path / "out").string();
  at = 0;
  hooks.evaluation_metrics = [&](const gannet::Example&, const at::Tensor&) {
    BatchMetrics metrics{{"loss", values[at]}};
    return metrics.of_samples(static_cast<double>(at++));
  };
  EXPECT_DOUBLE_EQ(*gannet::run_trial<trial_test::SmallTrial>(all).best_metric, (2 * 1 + 3 * 2 + 10 * 3) / 6.0);
}

TEST_F(TrialTest, TheBestCheckpointIsKeptBesideTheNewest) {
  Folder folder("best");
  auto all = settings(folder);
  all.validation_period = all.checkpoint_period = TrialLength::batches(1);
  all.metric = "accuracy";
  all.smaller_is_better = false;
  all.keep_checkpoints = 2;
  std::vector<double> accuracies = {0.1, 0.7, 0.3, 0.4, 0.5, 0.6};
  int64_t batch = 0;
  hooks.on_batch = [&](gannet::TrialContext& context) { batch = context.current_train_batch(); };
  hooks.evaluation_metrics = [&](const gannet::Example&, const at::Tensor& loss) {
    return BatchMetrics{{"loss", loss}, {"accuracy", accuracies[static_cast<size_t>(batch)]}};
  };
  const auto result = gannet::run_trial<trial_test::SmallTrial>(all);
  EXPECT_EQ(result.best_batch, 2);
  EXPECT_DOUBLE_EQ(*result.best_metric, 0.7);
  EXPECT_THAT(checkpoints_in(folder), testing::UnorderedElementsAre("batch-2", "batch-5", "batch-6"));
  EXPECT_THAT(text_of(folder.path / "out/trial.json"), testing::HasSubstr("\"best_batch\": 2"));
}

TEST_F(TrialTest, MetricsReachTheEnginesMonitors) {
  Folder folder("monitors");
  const std::string path = (folder.path / "metrics.jsonl").string();
  auto all = settings(folder, {{"overwrite_deepspeed_args", Dict{{"gannet", Dict{{"metrics", Dict{{"path", path}}}}}}}});
  all.report_period = 2;
  all.validation_period = TrialLength::batches(2);
  gannet::run_trial<trial_test::SmallTrial>(all);
  const std::string lines = text_of(path);
  for (const char* name : {"\"trial/loss\"", "\"trial/largest\"", "\"validation/loss\""})
    EXPECT_THAT(lines, testing::HasSubstr(name));
}

struct WholeTrial : trial_test::SmallTrial {
  using SmallTrial::SmallTrial;
  gannet::BatchMetrics evaluate_full_dataset(gannet::DataLoader<>& loader) override {
    double largest = 0, samples = 0;
    for (auto& batch : loader) {
      largest = std::max(largest, batch.data.max().item<double>());
      samples += static_cast<double>(batch.data.size(0));
    }
    return gannet::BatchMetrics{{"loss", largest}, {"samples", samples}}.of_samples(samples);
  }
};

TEST_F(TrialTest, AFullEvaluationReplacesTheBatches) {
  Folder folder("full");
  auto all = settings(folder);
  all.max_length = TrialLength::batches(1);
  gannet::run_trial<WholeTrial>(all);
  EXPECT_THAT(lines_of(folder).back(), testing::ContainsRegex("\"samples\": ?7.0"));
}

// Several draws in a call, a batch type of the program's own, accumulation by hand.
struct Pair {
  at::Tensor x;
  Pair to(at::Device device) const { return {x.to(device)}; }
  double samples() const { return 2; }
};
struct HandTrial : gannet::Trial<Pair, at::Tensor> {
  explicit HandTrial(gannet::TrialContext& context) : context_(context) {
    const Dict config = trial_test::small_config(2, 2);
    engine_ = context.wrap_model_engine(gannet::initialize(trial_test::Net(2, 0.0), {.config = config}).engine);
    context.disable_auto_grad_accumulation();
    context.disable_dataset_reproducibility_checks();
  }
  Loader build_training_data_loader() override {
    const auto stream = [count = 0]() mutable -> std::optional<Pair> { return Pair{torch::full({2, 3}, 0.1 * (count++ % 5))}; };
    return gannet::make_loader(gannet::Dataset<Pair>(gannet::Batched(stream)));
  }
  ValidationLoader build_validation_data_loader() override {
    return context_.make_validation_loader<at::Tensor>(std::vector<at::Tensor>(2 * validation_batches, torch::ones(3)));
  }
  gannet::BatchMetrics train_batch(Iterator& iterator, int64_t, int64_t) override {
    at::Tensor loss;
    for (int64_t i = 0; i < engine_->gradient_accumulation_steps(); ++i) {
      loss = engine_->forward(context_.to_device(iterator.next()).x).square().mean();
      engine_->backward(loss);
      engine_->step();
    }
    return loss;
  }
  gannet::BatchMetrics evaluate_batch(ValidationIterator& iterator, int64_t) override {
    at::Tensor one = iterator.next(), two = one;
    for (int64_t i = 1; i < draws; ++i) two = iterator.next();
    return {{"validation_loss", one.sum() + two.sum()}};
  }
  inline static int64_t draws = 1, validation_batches = 3;
  gannet::TrialContext& context_;
  std::shared_ptr<gannet::Engine<trial_test::NetImpl>> engine_;
};

TEST_F(TrialTest, AProgramMayAccumulateByItselfOnAStream) {
  Folder folder("stream");
  auto all = settings(folder);
  all.max_length = TrialLength::batches(4);
  const auto result = gannet::run_trial<HandTrial>(all);
  EXPECT_EQ(result.batches, 4);
  EXPECT_DOUBLE_EQ(*result.best_metric, 12);
  EXPECT_THAT(lines_of(folder)[0], testing::ContainsRegex("\"epochs\": ?null"));
  HandTrial::draws = 3;
  all.output_dir += "2";
  EXPECT_DOUBLE_EQ(*gannet::run_trial<HandTrial>(all).best_metric, 12);
  HandTrial::validation_batches = 4;
  all.output_dir += "3";
  try {
    gannet::run_trial<HandTrial>(all);
    ADD_FAILURE() << "it ran";
  } catch (const gannet::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("evaluate_batch asked for a batch beyond the end of the validation loader"));
  }
  HandTrial::draws = 1;
  all.max_length = TrialLength::epochs(1);
  EXPECT_THROW(gannet::run_trial<HandTrial>(all), gannet::Error);
}

}  // namespace
