// The Trainer on several processes: results that do not depend on how a batch was cut, and runs that were ended and resumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "launched.h"
#include "program_runs.h"

namespace {

namespace fs = std::filesystem;

using launched::Folder;
using launched::text_of;
using trainer_test::batch;
using trainer_test::largest_difference;
using trainer_test::Outcome;
using trainer_test::run;

TEST(TrainerOnRanks, AnUpdateDoesNotDependOnHowItsBatchWasCut) {
  for (const std::string& smoothing : {std::string("0"), std::string("0.1")}) {
    const std::string rest =
        "--num_train_epochs 2 --learning_rate 0.01 --weight_decay 0.1 --label_smoothing_factor " + smoothing + " ";
    Folder folder("cut");
    const Outcome whole = run(folder, 1, rest + batch(8, 1));
    ASSERT_EQ(whole.exit_code, 0) << whole.output;
    const auto same = [&](const Outcome& cut) {
      ASSERT_EQ(cut.exit_code, 0) << cut.output;
      EXPECT_LT(largest_difference(cut.numbers, whole.numbers), 1e-6);
    };
    same(run(folder, 1, rest + batch(2, 4)));
    same(run(folder, 2, rest + batch(2, 2)));
    same(run(folder, 2, rest + batch(1, 4) + "--stage 3"));
  }
}

// auto_find_batch_size: only one rank is out of memory in backward; all take the size that it has
// memory for.
TEST(TrainerOnRanks, AllTakeTheBatchSizeThatEachHasMemoryFor) {
  Folder folder("find");
  const std::string rest = "--num_train_epochs 2 --gradient_accumulation_steps 2 --learning_rate 0.01 --warmup_steps 0.2 ";
  for (const std::string& stage : {std::string("--stage 0 "), std::string("--stage 1 "), std::string("--stage 2 --bf16 ")}) {
    SCOPED_TRACE(stage);
    const Outcome found = run(folder, 2, rest + stage + "--per_device_train_batch_size 5 --auto_find_batch_size --limit 3");
    ASSERT_EQ(found.exit_code, 0) << found.output;
    EXPECT_NE(found.output.find("no memory for micro-batches of 4 samples (rank 1: "), std::string::npos) << found.output;
    const Outcome direct = run(folder, 2, rest + stage + "--per_device_train_batch_size 3");
    ASSERT_EQ(direct.exit_code, 0) << direct.output;
    EXPECT_EQ(found.numbers, direct.numbers);
  }
  const Outcome refused = run(folder, 2, rest + "--stage 3 --auto_find_batch_size");
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_NE(refused.output.find("auto_find_batch_size at ZeRO stage 3 on several ranks"), std::string::npos) << refused.output;
}

// The memory of a process runs out in earnest, in forward and in backward: 64 MiB for each sample, and 1200 MiB beyond what the
// process has, some of which its threads take.
TEST(TrainerOnRanks, ABatchSizeIsFoundUnderALimitOfMemory) {
  Folder folder("limit");
  const std::string rest = "--max_steps 3 --samples 64 --learning_rate 0.01 ";
  const Outcome found = run(folder, 1, rest + "--per_device_train_batch_size 32 --auto_find_batch_size --memory_mb 1200");
  ASSERT_EQ(found.exit_code, 0) << found.output;
  EXPECT_NE(found.output.find("no memory for micro-batches of 32 samples"), std::string::npos) << found.output;
  const std::string mark = "auto_find_batch_size: ";
  const size_t place = found.output.rfind(mark);
  ASSERT_NE(place, std::string::npos);
  const int size = std::stoi(found.output.substr(place + mark.size()));
  EXPECT_GT(size, 1);
  EXPECT_LT(size, 20);
  EXPECT_EQ(found.numbers, run(folder, 1, rest + "--per_device_train_batch_size " + std::to_string(size)).numbers);
}

// Micro-batches of 8, 2 and 1 on 1, 2 and 4 ranks against the whole batch on one; 76 samples, so that the last update is short.
TEST(TrainerOnRanks, AnUpdateDoesNotDependOnItsCutOnFourRanks) {
  const bool is_full = std::getenv("GANNET_TEST_FULL") != nullptr;
  for (const std::string& smoothing : is_full ? std::vector<std::string>{"0", "0.1"} : std::vector<std::string>{"0.1"})
    for (const int ranks : is_full ? std::vector<int>{1, 2, 4} : std::vector<int>{4}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, smoothing " + smoothing);
      const std::string rest =
          "--num_train_epochs 1 --samples 76 --learning_rate 0.01 --weight_decay 0.1 "
          "--label_smoothing_factor " +
          smoothing + " ";
      Folder folder("four");
      const Outcome whole = run(folder, 1, rest + batch(8 * ranks, 1));
      ASSERT_EQ(whole.exit_code, 0) << whole.output;
      for (const auto& [micro_batch, accumulation] : {std::pair{8, 1}, {2, 4}, {1, 8}}) {
        const Outcome cut = run(folder, ranks, rest + batch(micro_batch, accumulation));
        ASSERT_EQ(cut.exit_code, 0) << cut.output;
        EXPECT_LT(largest_difference(cut.numbers, whole.numbers), 1e-6) << micro_batch << " x " << accumulation;
      }
    }
}

TEST(TrainerOnRanks, AnEvaluationCountsEachSampleOnceOnAnyNumberOfRanks) {
  const std::string rest = batch(4, 1) + "--max_steps 2 --do_eval --eval_strategy no ";
  Folder folder("evaluation");
  // 13 samples: on 2 ranks in batches of 4, the second rank is out of samples in the last round. Batches of 16: a rank has none.
  const Outcome one = run(folder, 1, batch(4, 2) + "--max_steps 2 --do_eval --per_device_eval_batch_size 3");
  const Outcome two = run(folder, 2, rest + "--per_device_eval_batch_size 4 --stage 3");
  const Outcome idle = run(folder, 2, rest + "--per_device_eval_batch_size 16");
  ASSERT_EQ(one.exit_code, 0) << one.output;
  ASSERT_EQ(two.exit_code, 0) << two.output;
  ASSERT_EQ(idle.exit_code, 0) << idle.output;
  EXPECT_LT(largest_difference(two.numbers, one.numbers), 1e-6);
  EXPECT_LT(largest_difference(idle.numbers, one.numbers), 1e-6);
  EXPECT_EQ(one.numbers.at(6), 13);  // eval_accuracy, eval_loss, eval_samples behind two losses and norms
}

// Everything that a resume must restore: shuffled data, a short last update, logs between saves, the best model, early stopping.
const std::string kWhole =
    batch(2, 2) +
    "--num_train_epochs 3 --samples 22 --train_sampling_strategy random --learning_rate 0.02 "
    "--logging_steps 3 --logging_first_step --eval_strategy steps --eval_steps 2 --save_strategy steps "
    "--save_steps 2 --save_total_limit 2 --load_best_model_at_end --metric_for_best_model accuracy --patience 40 "
    "--resume_from_checkpoint last ";

void expect_same_end(const Folder& folder, const Folder& undisturbed) {
  const std::string state = text_of(undisturbed.path / "run/trainer_state.json");
  ASSERT_THAT(state, testing::HasSubstr("best_metric"));
  EXPECT_EQ(text_of(folder.path / "run/trainer_state.json"), state);
  std::vector<std::string> folders, expected;
  for (const auto& entry : fs::directory_iterator(undisturbed.path / "run"))
    if (entry.path().filename().string().starts_with("checkpoint-")) {
      const std::string name = entry.path().filename();
      const std::string weights = text_of(entry.path() / "model.safetensors");
      EXPECT_FALSE(weights.empty());
      EXPECT_EQ(text_of(folder.path / "run" / name / "model.safetensors"), weights) << name;
      expected.push_back(name);
    }
  for (const auto& entry : fs::directory_iterator(folder.path / "run"))
    if (entry.path().filename().string().starts_with("checkpoint-")) folders.push_back(entry.path().filename());
  EXPECT_THAT(folders, testing::UnorderedElementsAreArray(expected));
}

TEST(TrainerOnRanks, ARunThatWasEndedAndResumedIsTheUndisturbedRun) {
  for (const int ranks : {1, 2}) {
    Folder undisturbed("undisturbed");
    const Outcome whole = run(undisturbed, ranks, kWhole);
    ASSERT_EQ(whole.exit_code, 0) << whole.output;
    for (const std::string& end :
         {std::string("--term_at 4"), std::string("--term_at 5"), std::string("--kill_at 5"), std::string("--kill_at 7")}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + end);
      Folder folder("ended");
      const Outcome ended = run(folder, ranks, kWhole + end);
      if (end.starts_with("--term"))
        EXPECT_EQ(ended.exit_code, 85) << ended.output;
      else
        EXPECT_NE(ended.exit_code, 0);
      const Outcome resumed = run(folder, ranks, kWhole);
      ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
      EXPECT_THAT(resumed.output, testing::HasSubstr("resumed from"));
      expect_same_end(folder, undisturbed);
    }
  }
}

int64_t steps_of(const Folder& folder) {
  const std::string state = text_of(folder.path / "run/trainer_state.json"), key = "\"global_step\": ";
  const size_t at = state.find(key);
  return at == std::string::npos ? -1 : std::stoll(state.substr(at + key.size()));
}

void expect_same_after(const Folder& undisturbed, int ranks, const std::string& arguments, const std::string& end) {
  SCOPED_TRACE(std::to_string(ranks) + " ranks, " + end);
  Folder folder("ended_anywhere");
  const Outcome ended = run(folder, ranks, arguments + end);
  if (end.starts_with("--term"))
    EXPECT_EQ(ended.exit_code, 85) << ended.output;
  else
    EXPECT_NE(ended.exit_code, 0);
  const Outcome resumed = run(folder, ranks, arguments);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  expect_same_end(folder, undisturbed);
}

TEST(TrainerOnRanks, ARunThatStopsEarlyDoesSoAtTheSameStepAfterAResume) {
  std::string arguments = kWhole;
  const std::string patience = "--patience 40";
  arguments.replace(arguments.find(patience), patience.size(), "--patience 1");
  Folder undisturbed("undisturbed_early");
  const Outcome whole = run(undisturbed, 1, arguments);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  ASSERT_GE(steps_of(undisturbed), 4);
  ASSERT_LT(steps_of(undisturbed), 18) << "this run does not stop early";
  for (const char* end : {"--kill_at 3", "--term_at 3", "--term_at 2"}) expect_same_after(undisturbed, 1, arguments, end);
}

// Every step of the run, also those before its first checkpoint.
TEST(TrainerOnRanks, ARunMayBeEndedAtAnyStep) {
  if (!std::getenv("GANNET_TEST_FULL")) GTEST_SKIP() << "with GANNET_TEST_FULL";
  for (const int ranks : {1, 2}) {
    Folder undisturbed("undisturbed_anywhere");
    const Outcome whole = run(undisturbed, ranks, kWhole);
    ASSERT_EQ(whole.exit_code, 0) << whole.output;
    for (int64_t step = 0; step < steps_of(undisturbed); ++step)
      for (const char* end : {"--kill_at ", "--term_at "})
        expect_same_after(undisturbed, ranks, kWhole, end + std::to_string(step));
  }
}

TEST(TrainerOnRanks, AResumeListsWhatChangedAndRefusesAnotherBatch) {
  Folder folder("changed");
  ASSERT_EQ(run(folder, 1, batch(2, 2) + "--max_steps 2 --save_strategy steps --save_steps 2").exit_code, 0);
  const Outcome changed =
      run(folder, 1, batch(2, 2) + "--max_steps 4 --adam_beta2 0.95 --resume_from_checkpoint run/checkpoint-2");
  EXPECT_EQ(changed.exit_code, 0) << changed.output;
  EXPECT_THAT(changed.output,
              testing::HasSubstr("argument adam_beta2 was its default where the checkpoint was saved, and is 0.95 now"));
  const Outcome batch_changed = run(folder, 1, batch(4, 2) + "--max_steps 4 --resume_from_checkpoint run/checkpoint-2");
  EXPECT_EQ(batch_changed.exit_code, 2);
  EXPECT_THAT(batch_changed.output, testing::HasSubstr("was trained with 4 samples in an update, this run has 8"));
  EXPECT_EQ(run(folder, 1, batch(2, 2) + "--resume_from_checkpoint run/checkpoint-9").exit_code, 2);
}

TEST(TrainerOnRanks, WhatOneRankAsksForAllDo) {
  Folder folder("asked");
  const Outcome asked = run(folder, 2, batch(2, 1) + "--max_steps 6 --logging_steps 100 --ask_at 2");
  ASSERT_EQ(asked.exit_code, 0) << asked.output;
  EXPECT_EQ(steps_of(folder), 2);
  EXPECT_TRUE(fs::exists(folder.path / "run/checkpoint-2/trainer_state.json"));
  EXPECT_THAT(text_of(folder.path / "run/trainer_state.json"), testing::HasSubstr("eval_accuracy"));
  const Outcome stopped = run(folder, 2, batch(2, 1) + "--max_steps 6 --stop_at 3");
  ASSERT_EQ(stopped.exit_code, 0) << stopped.output;
  EXPECT_EQ(steps_of(folder), 3);
}

// 12 samples of two streams in updates of 4: rank 1's end after the first, and rank 0 has 6 more.
TEST(TrainerOnRanks, StreamsOfUnequalLengthsGiveEachSampleOnce) {
  Folder folder("uneven");
  for (const char* stage : {"0", "3"}) {
    const Outcome uneven =
        run(folder, 2, batch(2, 1) + "--samples 12 --uneven 4 --max_steps 4 --logging_steps 1 --stage " + stage);
    ASSERT_EQ(uneven.exit_code, 0) << uneven.output;
    EXPECT_EQ(steps_of(folder), 4);
    ASSERT_GE(uneven.numbers.size(), 8u);
    for (const double number : uneven.numbers) EXPECT_TRUE(std::isfinite(number));
  }
  const Outcome empty = run(folder, 2, batch(2, 1) + "--samples 8 --uneven 0 --max_steps 4");
  EXPECT_EQ(empty.exit_code, 2) << empty.output;
  EXPECT_THAT(empty.output, testing::HasSubstr("gave no micro-batch on one rank at least"));
}

// A random metric, or one that only one rank measures: the ranks must not load different best
// models.
TEST(TrainerOnRanks, TheMetricsOfTheFirstRankHoldForAll) {
  Folder folder("metrics");
  const Outcome run_of_two = run(folder, 2,
                                 batch(2, 1) +
                                     "--max_steps 5 --eval_strategy steps --eval_steps 1 --save_strategy steps "
                                     "--save_steps 1 --load_best_model_at_end --metric_for_best_model accuracy "
                                     "--save_total_limit 2 --patience 3 --metrics_by_rank 1");
  ASSERT_EQ(run_of_two.exit_code, 0) << run_of_two.output;
  for (const char* rank : {"[0] ", "[1] "})
    EXPECT_THAT(run_of_two.output, testing::HasSubstr(std::string(rank) + "best: run/checkpoint-1\n"));
  EXPECT_THAT(run_of_two.output, testing::HasSubstr("compute_metrics returned on rank 1 something else than on rank 0"));
}

// The program catches it there and does something else: the others do not wait out their deadline, ten minutes.
TEST(TrainerOnRanks, ACallbackThatThrowsOnOneRankIsAnErrorOnAllWithinSeconds) {
  for (const char* stage : {"0", "3"}) {
    if (std::getenv("GANNET_TEST_FULL") == nullptr && *stage == '0') continue;
    Folder folder("fails");
    const auto began = std::chrono::steady_clock::now();
    const Outcome failed = run(folder, 2, batch(2, 1) + "--max_steps 6 --fail_at 2 --stage " + stage);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(40));
    EXPECT_NE(failed.exit_code, 0);
    EXPECT_THAT(failed.output,
                testing::HasSubstr("caught: rank 1 has left train() by an error: the callback's disk is full (rank"));
  }
}

// The same with a program that trains again on that rank: its collectives do not meet with those of the others.
// Rank 0 gives the verdicts of the others' errors, and has told of its own before it ends.
TEST(TrainerOnRanks, TheErrorOfARankZeroThatEndsReachesTheOthers) {
  Folder folder("zero");
  const Outcome failed = run(folder, 2, batch(2, 1) + "--max_steps 6 --fail_at 2 --fail_on 0");
  EXPECT_NE(failed.exit_code, 0);
  EXPECT_THAT(failed.output, testing::HasSubstr("after it left train() by an error: the callback's disk is full"));
}

TEST(TrainerOnRanks, ARankThatTrainsAgainAfterAnErrorOfItsOwnIsAnErrorOnAll) {
  for (const char* stage : {"0", "3"}) {
    Folder folder("again");
    const Outcome failed = run(folder, 2, batch(2, 1) + "--max_steps 6 --fail_at 2 --again 1 --stage " + stage);
    EXPECT_EQ(failed.exit_code, 3) << failed.output;
    EXPECT_THAT(failed.output,
                testing::HasSubstr("caught: rank 1 has left train() by an error: the callback's disk is full (rank"));
    EXPECT_THAT(failed.output, testing::Not(testing::HasSubstr("SIGABRT")));
  }
}

// A signal to only one rank ends a program that only evaluates, after the current batch.
TEST(TrainerOnRanks, ASignalEndsAnEvaluationOutsideOfTraining) {
  for (const int ranks : {1, 2}) {
    Folder folder("term_in_evaluation");
    const Outcome ended =
        run(folder, ranks, "--evaluate 1 --per_device_eval_batch_size " + std::to_string(2 / ranks) + " --term_in_evaluation 3");
    EXPECT_EQ(ended.exit_code, 85) << ended.output;
    EXPECT_THAT(ended.output, testing::HasSubstr("the evaluation was ended by a signal after 3 batches"));
    const Outcome second = run(folder, ranks, "--evaluate 1 --per_device_eval_batch_size 13 --term_in_evaluation 1");
    EXPECT_EQ(second.exit_code, 85) << second.output;
    EXPECT_THAT(second.output, testing::HasSubstr("after 0 batches")) << "predict() behind it";
  }
}

TEST(TrainerOnRanks, AMetricThatThrowsOnOneRankIsAnErrorOnAll) {
  Folder folder("throws");
  const Outcome thrown = run(folder, 2, batch(2, 1) + "--max_steps 2 --eval_strategy steps --eval_steps 1 --throw_on 1");
  EXPECT_NE(thrown.exit_code, 0);
  EXPECT_THAT(thrown.output, testing::HasSubstr("compute_metrics failed on rank 1: no such metric"));
}

}  // namespace
