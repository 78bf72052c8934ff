// Averages over nothing: updates, epochs and evaluations none of whose labels count.
#include <cmath>

#include "habits.h"

namespace {

using namespace trainer_test;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<gannet::Example> masked(int64_t count, int64_t begin, int64_t end) {
  auto samples = make_samples(count);
  for (int64_t i = begin; i < end; ++i) samples[i].target = torch::full_like(samples[i].target, -100);
  return samples;
}

class LabelCount : public Habits {
 protected:
  size_t warnings(const std::string& text) const {
    size_t count = 0;
    for (const auto& line : lines) count += line.find(text) != std::string::npos;
    return count;
  }
};

TEST_F(LabelCount, AnUpdateWithoutALabelIsSaidOnceAndIsNoPartOfTheMeanLoss) {
  auto a = arguments(5);
  a.logging_steps = 1;
  Trainer trainer(make_model(), a, {.train_dataset = masked(20, 4, 12)});  // updates 2 and 3 of 5
  std::vector<double> losses;
  for (auto& step : trainer.steps()) losses.push_back(step.loss());
  EXPECT_TRUE(std::isnan(losses[1]) && std::isnan(losses[2]));
  EXPECT_EQ(warnings("update 2 has no label that counts: all labels of its 4 samples (1 micro-batches) are -100"), 1u);
  EXPECT_EQ(warnings("has no label that counts"), 1u);
  EXPECT_NEAR(trainer.output().training_loss, (losses[0] + losses[3] + losses[4]) / 3, 1e-6);
  const auto& history = trainer.state().log_history;
  EXPECT_TRUE(std::isnan(history[1].find("loss")->as_number()));
  EXPECT_NEAR(history[3].find("loss")->as_number(), losses[3], 1e-9);
  for (const auto& parameter : trainer.model()->parameters()) EXPECT_TRUE(parameter.isfinite().all().item<bool>());
}

TEST_F(LabelCount, AWholeEpochWithoutALabelIsAnError) {
  const auto told = [&](int64_t steps, int64_t count) {
    auto a = arguments(steps);
    a.weight_decay = 0.1;
    return error_of([&] { Trainer(make_model(), a, {.train_dataset = masked(count, 0, count)}).train(); });
  };
  EXPECT_THAT(told(9, 12), HasSubstr("no label of train_dataset counts: in a whole epoch, up to update 3, all of them are -100"));
  EXPECT_THAT(told(2, 12), HasSubstr("in the whole run, up to update 2"));
  EXPECT_EQ(warnings("update 1 has no label that counts: all labels of its 4 samples"), 2u);
}

TEST_F(LabelCount, TheRestOfAnEpochAfterAResumeMayHaveNone) {
  auto a = arguments(1);
  a.save_strategy = "steps";
  a.save_steps = 1;
  const auto samples = masked(12, 4, 12);
  Trainer(make_model(), a, {.train_dataset = samples}).train();
  a.max_steps = 5;
  a.resume_from_checkpoint = "last";
  Trainer resumed(make_model(), a, {.train_dataset = samples});
  const auto output = resumed.train();
  EXPECT_EQ(output.global_step, 5);
  a.resume_from_checkpoint = "";
  a.output_dir = folder / "whole";
  EXPECT_EQ(Trainer(make_model(), a, {.train_dataset = samples}).train().training_loss, output.training_loss);
}

TEST_F(LabelCount, AnEvaluationWithoutALabelIsSaid) {
  auto a = arguments(2);
  Trainer trainer(make_model(), a, {.train_dataset = make_samples(8), .eval_dataset = masked(6, 0, 6)});
  EXPECT_TRUE(std::isnan(trainer.evaluate().at("eval_loss")));
  EXPECT_EQ(warnings("eval_loss is not a number: all labels of the 6 samples are -100"), 1u);
  lines.clear();
  trainer.set_eval_dataset(masked(6, 0, 5));
  EXPECT_TRUE(std::isfinite(trainer.evaluate().at("eval_loss")));
  EXPECT_THAT(log(), Not(HasSubstr("not a number")));
}

}  // namespace
