// The Trainer over a pipeline: the runs are those without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "launched.h"
#include "program_runs.h"

namespace {

namespace fs = std::filesystem;

using launched::Folder;
using testing::HasSubstr;
using trainer_test::batch;
using trainer_test::largest_difference;
using trainer_test::Outcome;
using trainer_test::run;

void expect_same(const Outcome& pipeline, const Outcome& whole, double tolerance = 1e-6) {
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  ASSERT_EQ(pipeline.exit_code, 0) << pipeline.output;
  EXPECT_LT(largest_difference(pipeline.numbers, whole.numbers), tolerance);
}

// 37 samples in micro-batches of 2: the last update of an epoch has fewer micro-batches, and the last
// micro-batch fewer samples. Labels are uneven, biases and norms have no weight decay.
TEST(TrainerOnPipelines, AModelWithLayersTrainsAsWithoutStages) {
  const std::string rest =
      "--num_train_epochs 2 --samples 37 --learning_rate 0.01 --weight_decay 0.1 --max_grad_norm 0.5 --do_eval "
      "--per_device_eval_batch_size 3 --label_smoothing_factor ";
  Folder folder("stages");
  for (const std::string smoothing : {"0 ", "0.1 "}) {
    const Outcome whole = run(folder, 1, rest + smoothing + batch(4, 2));
    expect_same(run(folder, 2, rest + smoothing + batch(2, 4) + "--pipe 2"), whole);
    expect_same(run(folder, 2, rest + smoothing + batch(2, 4) + "--pipe 2 --schedule zb-h1 --stage 1 --partition memory"), whole);
  }
  expect_same(run(folder, 4, rest + "0 " + batch(2, 2) + "--pipe 2 --stage 3"), run(folder, 2, rest + "0 " + batch(2, 2)));
  expect_same(run(folder, 3, rest + "0 " + batch(2, 4) + "--pipe 3"), run(folder, 1, rest + "0 " + batch(4, 2)));
}

TEST(TrainerOnPipelines, AModuleOfLazyLayersTrainsOnAnyNumberOfStages) {
  const std::string rest = "--num_train_epochs 1 --learning_rate 0.01 --weight_decay 0.1 --do_eval --as_module 1 ";
  Folder folder("module");
  const Outcome whole = run(folder, 1, rest + batch(4, 2));
  expect_same(run(folder, 2, rest + batch(4, 2) + "--pipe 2"), whole);
  expect_same(run(folder, 2, rest + batch(2, 2)), whole);
}

TEST(TrainerOnPipelines, ARunThatWasKilledOrStoppedResumesOnOtherStages) {
  const std::string rest = batch(2, 2) +
                           "--max_steps 8 --learning_rate 0.01 --save_strategy steps --save_steps 2 "
                           "--eval_strategy steps --eval_steps 2 --load_best_model_at_end --resume_from_checkpoint last ";
  Folder undisturbed("undisturbed");
  const Outcome whole = run(undisturbed, 1, rest);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const auto losses_after = [](const Outcome& outcome, size_t updates) {
    return std::vector<double>(outcome.numbers.begin() + static_cast<std::ptrdiff_t>(2 * updates), outcome.numbers.end());
  };
  for (const std::string end : {"--kill_at 5", "--term_at 4"}) {
    SCOPED_TRACE(end);
    Folder folder("ended");
    const Outcome ended = run(folder, 2, rest + "--pipe 2 " + end);
    EXPECT_NE(ended.exit_code, 0);
    const Outcome resumed = run(folder, end == "--kill_at 5" ? 1 : 3, rest + (end == "--kill_at 5" ? "" : "--pipe 3"));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_THAT(resumed.output, HasSubstr("resumed from"));
    const size_t updates = end == "--kill_at 5" ? 4 : 5;
    EXPECT_LT(largest_difference(resumed.numbers, losses_after(whole, updates)), 1e-6);
  }
}

// A callback of one stage asks for all; its errors and those of metrics are errors on all.
TEST(TrainerOnPipelines, WhatOneStageAsksForAllDo) {
  Folder folder("asked");
  const Outcome asked = run(folder, 2, batch(2, 2) + "--pipe 2 --max_steps 6 --logging_steps 100 --ask_at 2");
  ASSERT_EQ(asked.exit_code, 0) << asked.output;
  EXPECT_TRUE(fs::exists(folder.path / "run" / "checkpoint-2" / "manifest.json"));
  EXPECT_FALSE(fs::exists(folder.path / "run" / "checkpoint-3"));
  EXPECT_THAT(asked.output, HasSubstr("on_pre_optimizer_step of the callback"));
  const Outcome stopped = run(folder, 2, batch(2, 2) + "--pipe 2 --max_steps 6 --stop_at 3");
  ASSERT_EQ(stopped.exit_code, 0) << stopped.output;
  const Outcome thrown = run(folder, 2, batch(2, 2) + "--pipe 2 --max_steps 2 --eval_strategy steps --eval_steps 1 --throw_on 1");
  EXPECT_NE(thrown.exit_code, 0);
  EXPECT_THAT(thrown.output, HasSubstr("compute_metrics failed on rank 1: no such metric"));
  const Outcome ended = run(folder, 2, "--pipe 2 --evaluate 1 --per_device_eval_batch_size 1 --term_in_evaluation 3");
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_THAT(ended.output, HasSubstr("the evaluation was ended by a signal"));
}

TEST(TrainerOnPipelines, WhatStagesCannotDoIsRefused) {
  Folder folder("refused");
  const Outcome sizes = run(folder, 2, "--pipe 2 --max_steps 2 --auto_find_batch_size");
  EXPECT_EQ(sizes.exit_code, 2) << sizes.output;
  EXPECT_THAT(sizes.output, HasSubstr("auto_find_batch_size with a pipeline"));
  const Outcome smoothed = run(folder, 2, "--as_module 1 --max_steps 2 --label_smoothing_factor 0.1");
  EXPECT_EQ(smoothed.exit_code, 2) << smoothed.output;
  EXPECT_THAT(smoothed.output, HasSubstr("label_smoothing_factor of a Trainer with a pipe::Module"));
}

}  // namespace
