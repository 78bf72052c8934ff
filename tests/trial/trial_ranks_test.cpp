// Trials on several processes, and trials that are ended and resumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "launched.h"

namespace {

namespace fs = std::filesystem;
using launched::Folder;
using launched::Outcome;
using launched::text_of;

Outcome run(const Folder& folder, int ranks, const std::string& arguments, const std::string& environment = "") {
  return launched::run(folder.path, ranks, "trial_program", "--output_dir out " + arguments, environment);
}

// Tensors of a checkpoint, by file; and the records.
std::map<std::string, std::string> end_of(const Folder& folder, int64_t batches) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path / "out/checkpoints")) {
    const std::string path = fs::relative(entry.path(), folder.path).string();
    if (path.find("/batch-" + std::to_string(batches) + "/rank-") != std::string::npos) files[path] = text_of(entry.path());
  }
  files["trial.jsonl"] = text_of(folder.path / "out/trial.jsonl");
  files["trial.json"] = text_of(folder.path / "out/trial.json");
  return files;
}

// Without clipping the stages have the bits of one rank, and so has the record.
TEST(TrialOnRanks, ATrialOfAPipelineIsThatOfOneRankAndResumes) {
  const std::string arguments = "--max_length '4 epochs' --report_period 2 --checkpoint_period 3 ";
  Folder whole("whole"), stages("stages");
  const Outcome one = run(whole, 1, arguments, "TRIAL_STAGED=1");
  ASSERT_EQ(one.exit_code, 0) << one.output;
  const Outcome killed = run(stages, 2, arguments, "TRIAL_STAGED=1 TRIAL_KILL_AT=5");
  EXPECT_NE(killed.exit_code, 0);
  const Outcome two = run(stages, 2, arguments, "TRIAL_STAGED=1");
  ASSERT_EQ(two.exit_code, 0) << two.output;
  EXPECT_THAT(two.output, testing::HasSubstr("resumed out after batch 4"));
  EXPECT_THAT(two.output, testing::HasSubstr("after batch 8")) << "4 epochs of 6 micro-batches, 3 of them in a batch";
  EXPECT_EQ(text_of(stages.path / "out/trial.jsonl"), text_of(whole.path / "out/trial.jsonl"));
}

const std::string kWhole =
    "--max_length 17 --validation_period 5 --checkpoint_period 3 --report_period 4 --hparam nets=2 --hparam samples=14 "
    "--set gradient_accumulation_steps=2 ";

TEST(TrialOnRanks, ATrialOfTwoEnginesThatWasEndedAndResumedIsTheUndisturbedOne) {
  for (const int ranks : {1, 2}) {
    Folder undisturbed("undisturbed");
    const Outcome whole = run(undisturbed, ranks, kWhole);
    ASSERT_EQ(whole.exit_code, 0) << whole.output;
    const auto expected = end_of(undisturbed, 17);
    ASSERT_EQ(expected.size(), 2u + 2 * ranks) << whole.output;
    for (const std::string& end : {std::string("TRIAL_TERM_AT=9"), std::string("TRIAL_KILL_AT=10")}) {
      if (ranks == 1 && end.starts_with("TRIAL_TERM")) continue;
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + end);
      Folder folder("ended");
      const Outcome ended = run(folder, ranks, kWhole, end);
      if (end.starts_with("TRIAL_TERM"))
        EXPECT_EQ(ended.exit_code, 85) << ended.output;
      else
        EXPECT_NE(ended.exit_code, 0);
      const Outcome resumed = run(folder, ranks, kWhole);
      ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
      EXPECT_THAT(resumed.output, testing::HasSubstr("resumed out after batch"));
      EXPECT_EQ(end_of(folder, 17), expected);
    }
  }
}

TEST(TrialOnRanks, AnEndBetweenTwoEnginesSavesGoesBackToTheCheckpointThatBothHave) {
  Folder undisturbed("both"), folder("between");
  const std::string arguments = "--max_length 9 --checkpoint_period 3 --hparam nets=2 --validation_period 100 ";
  ASSERT_EQ(run(undisturbed, 1, arguments).exit_code, 0);
  ASSERT_EQ(run(folder, 1, arguments, "TRIAL_KILL_AT=7").exit_code, 137);
  fs::remove_all(folder.path / "out/checkpoints/critic/batch-6");
  const Outcome resumed = run(folder, 1, arguments);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, testing::HasSubstr("resumed out after batch 3"));
  EXPECT_EQ(end_of(folder, 9), end_of(undisturbed, 9));
}

double metric_of(const std::string& records, const std::string& kind, const std::string& name) {
  const size_t line = records.rfind("{\"kind\": \"" + kind);
  const size_t compact = records.rfind("{\"kind\":\"" + kind);
  const size_t begin = line == std::string::npos ? compact : line;
  size_t at = records.find("\"" + name + "\":", begin);
  if (begin == std::string::npos || at == std::string::npos) return -1e9;
  return std::stod(records.substr(at + name.size() + 3));
}

TEST(TrialOnRanks, MetricsAreThoseOfTheWholeBatchAndEachValidationSampleCountsOnce) {
  // 5 validation samples in batches of 2: on two ranks 3 and 2 of them, so that one runs along without data.
  Folder one("one"), two("two");
  const std::string rest = "--max_length 6 --hparam dropout=0.0 --report_period 2 --hparam samples=12 ";
  const Outcome alone = run(one, 1, rest + "--set train_micro_batch_size_per_gpu=4", "TRIAL_VALIDATION=5");
  const Outcome both = run(two, 2, rest, "TRIAL_VALIDATION=5");
  ASSERT_EQ(alone.exit_code, 0) << alone.output;
  ASSERT_EQ(both.exit_code, 0) << both.output;
  const std::string a = text_of(one.path / "out/trial.jsonl"), b = text_of(two.path / "out/trial.jsonl");
  for (const std::string& kind : {std::string("training"), std::string("validation")})
    EXPECT_NEAR(metric_of(a, kind, "loss"), metric_of(b, kind, "loss"), 1e-6) << a << b;
  EXPECT_NEAR(metric_of(a, "validation", "target"), metric_of(b, "validation", "target"), 1e-7);
  EXPECT_EQ(metric_of(a, "training", "batch"), 4.5);
  EXPECT_EQ(metric_of(b, "training", "batch"), 4.5);
  EXPECT_NEAR(metric_of(a, "training", "largest"), metric_of(b, "training", "largest"), 1e-7);
  EXPECT_EQ(metric_of(a, "training", "count"), 2);
  EXPECT_EQ(metric_of(b, "training", "count"), 4);
  EXPECT_EQ(metric_of(a, "validation", "count"), 2);
  EXPECT_EQ(metric_of(b, "validation", "count"), 3);  // not the batch that was repeated
}

TEST(TrialOnRanks, RanksOfOneModelReadTheSameData) {
  Folder one("alone"), two("model");
  const std::string rest = "--max_length 6 --report_period 2 ";
  ASSERT_EQ(run(one, 1, rest).exit_code, 0);
  const Outcome both = run(two, 2, rest, "TRIAL_MPU=1");
  ASSERT_EQ(both.exit_code, 0) << both.output;
  EXPECT_EQ(text_of(two.path / "out/trial.jsonl"), text_of(one.path / "out/trial.jsonl"));
}

TEST(TrialOnRanks, OneRanksRequestEndsTheTrialOnAll) {
  Folder folder("request");
  const Outcome ended = run(folder, 2, "--max_length 20 ", "TRIAL_END_AT=4");
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, testing::HasSubstr("ended at its own request after batch 5"));
  EXPECT_TRUE(fs::exists(folder.path / "out/checkpoints/engine/batch-5"));
  const Outcome again = run(folder, 2, "--max_length 20 ");
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_THAT(again.output, testing::HasSubstr("ended at its own request after batch 5"));
}

TEST(TrialOnRanks, AnErrorOfOneRankThatItsProgramCatchesIsAnErrorOnAllWithinSeconds) {
  Folder folder("fails");
  const auto began = std::chrono::steady_clock::now();
  const Outcome failed = run(folder, 2, "--max_length 8 ", "TRIAL_FAIL_AT=3");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(40));
  EXPECT_EQ(failed.exit_code, 4) << failed.output;
  EXPECT_THAT(failed.output,
              testing::HasSubstr("caught: rank 1 has left run_trial() by an error: a batch without labels (rank 0"));
}

TEST(TrialOnRanks, RanksThatDifferAreRefusedOnAll) {
  Folder folder("differ");
  const auto refuses = [&](const std::string& environment, const std::string& sentence) {
    const Outcome outcome = run(folder, 2, "--max_length 4 --report_period 2 ", environment);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_THAT(outcome.output, testing::HasSubstr(sentence));
  };
  refuses("TRIAL_UNSHARED=1", "the loader is that of rank 0 of 1, the trial runs on 2 ranks");
  refuses("TRIAL_UNEVEN=1", "an epoch of the training loader has 3 micro-batches on rank 0 and 5 on rank 1");
  refuses("TRIAL_MPU=1 TRIAL_MPU_NOT_GIVEN=1", "the mpu has 1 data parallel ranks, the engine 'engine' 2");
  refuses("TRIAL_LENGTHS=1", "epoch_length is 0 on rank 0 and 7 on rank 1");
  refuses("TRIAL_NAMES=1", "has the metrics a, loss, rank 1 has b, loss");
}

TEST(TrialOnRanks, AResumeOnAnotherNumberOfRanksSeesTheSameSamples) {
  Folder folder("elsewhere"), undisturbed("there");
  const std::string rest = "--hparam dropout=0.0 --checkpoint_period 3 --validation_period 100 ";
  ASSERT_EQ(run(undisturbed, 2, rest + "--max_length 9").exit_code, 0);
  ASSERT_EQ(run(folder, 2, rest + "--max_length 6").exit_code, 0);
  const Outcome resumed = run(folder, 1, rest + "--max_length 9 --set gradient_accumulation_steps=2 --allow_changed_hparams");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NEAR(metric_of(text_of(folder.path / "out/trial.jsonl"), "validation", "loss"),
              metric_of(text_of(undisturbed.path / "out/trial.jsonl"), "validation", "loss"), 1e-6);
}

}  // namespace
