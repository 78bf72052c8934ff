// State that a trial finds in its folder when it starts again.
#include "trial_fixture.h"

namespace {

using gannet::BatchMetrics;
using gannet::TrialLength;
using launched::Folder;
using launched::text_of;
using trial_test::hooks;
using trial_test::TrialTest;
namespace fs = std::filesystem;

// The best loss of 0.1 must not be compared with an accuracy.
TEST_F(TrialTest, AResumeThatChoosesByAnotherMetricForgetsTheBestSoFar) {
  Folder folder("another");
  auto all = settings(folder);
  all.max_length = TrialLength::batches(2);
  all.validation_period = TrialLength::batches(1);
  hooks.evaluation_metrics = [](const gannet::Example&, const at::Tensor&) {
    return BatchMetrics{{"loss", 0.9}, {"accuracy", 0.4}, {"error", 0.95}};
  };
  EXPECT_EQ(gannet::run_trial<trial_test::SmallTrial>(all).best_batch, 1);
  all.max_length = TrialLength::batches(3);
  all.metric = "accuracy";
  all.smaller_is_better = false;
  auto result = gannet::run_trial<trial_test::SmallTrial>(all);
  EXPECT_EQ(result.best_batch, 3);
  EXPECT_DOUBLE_EQ(result.best_metric.value_or(-1), 0.4);
  // With the same metric again, the best so far is kept.
  all.max_length = TrialLength::batches(4);
  result = gannet::run_trial<trial_test::SmallTrial>(all);
  EXPECT_EQ(result.best_batch, 3);
  all.smaller_is_better = true;
  all.max_length = TrialLength::batches(5);
  EXPECT_EQ(gannet::run_trial<trial_test::SmallTrial>(all).best_batch, 5);
}

TEST_F(TrialTest, ATrialWhoseCheckpointsAreGoneSaysThatItBeginsAgain) {
  Folder folder("gone");
  gannet::run_trial<trial_test::SmallTrial>(settings(folder));
  fs::remove_all(folder.path / "out/checkpoints");
  std::string log;
  gannet::set_log_sink([&](gannet::LogLevel, const std::string& line) { log += line + "\n"; });
  EXPECT_EQ(gannet::run_trial<trial_test::SmallTrial>(settings(folder)).resumed_at, 0);
  EXPECT_THAT(log, testing::HasSubstr("is of a trial that had saved batch 6, but "));
  EXPECT_THAT(log, testing::HasSubstr("the trial begins again"));
  log.clear();
  EXPECT_EQ(gannet::run_trial<trial_test::SmallTrial>(settings(folder)).resumed_at, 6);
  EXPECT_THAT(log, testing::Not(testing::HasSubstr("begins again")));
  gannet::set_log_sink({});
}

// In JSON it is null, which is no other value.
TEST_F(TrialTest, AHyperparameterThatIsNotFiniteStaysTheSame) {
  Folder folder("infinite");
  auto all = settings(folder, {{"limit", std::numeric_limits<double>::infinity()}});
  gannet::run_trial<trial_test::SmallTrial>(all);
  all.max_length = TrialLength::batches(8);
  EXPECT_EQ(gannet::run_trial<trial_test::SmallTrial>(all).resumed_at, 6);
}

// An epoch may have taken days.
TEST_F(TrialTest, AMisspeltMetricCostsNoTraining) {
  Folder folder("misspelt");
  auto all = settings(folder);
  all.max_length = TrialLength::epochs(1);
  all.metric = "los";
  EXPECT_THROW(gannet::run_trial<trial_test::SmallTrial>(all), gannet::Error);
  EXPECT_THAT(checkpoints_in(folder), testing::ElementsAre("batch-6"));
  all.metric = "loss";
  all.max_length = TrialLength::epochs(2);
  const auto result = gannet::run_trial<trial_test::SmallTrial>(all);
  EXPECT_EQ(result.resumed_at, 6);
  EXPECT_EQ(result.best_batch, 12);
}

TEST_F(TrialTest, ADamagedCheckpointIsPassedOver) {
  Folder folder("damaged");
  auto all = settings(folder, {{"nets", 2}});
  all.checkpoint_period = TrialLength::batches(2);
  all.validation_period = TrialLength::batches(100);
  gannet::run_trial<trial_test::SmallTrial>(all);
  const auto expected = lines_of(folder);
  for (const auto& entry : fs::directory_iterator(folder.path / "out/checkpoints/critic/batch-6"))
    if (entry.path().filename().string().starts_with("rank-")) fs::resize_file(entry.path(), fs::file_size(entry.path()) / 2);
  const auto result = gannet::run_trial<trial_test::SmallTrial>(all);
  EXPECT_EQ(result.resumed_at, 4);
  EXPECT_EQ(lines_of(folder), expected);
}

}  // namespace
