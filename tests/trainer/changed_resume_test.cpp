// A resume with another schedule, length or rate: what the present run decides is not the checkpoint's.
#include "habits.h"

namespace {

using namespace trainer_test;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ChangedResume : public Habits {
 protected:
  TrainingArguments saving(int64_t steps) const {
    auto a = arguments(steps);
    a.learning_rate = 0.1;
    a.save_strategy = "steps";
    a.save_steps = 4;
    return a;
  }
  std::vector<double> run(const TrainingArguments& a) const {
    Trainer trainer(make_model(), a, {.train_dataset = make_samples(40)});
    return rates_of(trainer);
  }
  // The same without a resume, from update 5 on.
  std::vector<double> expected(TrainingArguments a) const {
    a.resume_from_checkpoint = "";
    a.save_strategy = "no";
    auto rates = run(a);
    rates.erase(rates.begin(), rates.begin() + 4);
    return rates;
  }
  std::vector<double> resumed(TrainingArguments& a) {
    run(saving(4));
    lines.clear();
    a.resume_from_checkpoint = (folder / "run/checkpoint-4").string();
    a.save_strategy = "no";
    return run(a);
  }
};

TEST_F(ChangedResume, ALongerRunHasTheRatesOfItsOwnScheduleFromTheFirstUpdateOn) {
  auto a = saving(8);
  const auto rates = resumed(a);
  ASSERT_EQ(rates.size(), 4u);
  EXPECT_DOUBLE_EQ(rates[0], 0.05);  // at the checkpoint it was 0
  EXPECT_EQ(rates, expected(a));
  EXPECT_THAT(log(), HasSubstr("lr of group 0 is 0.05, as this run's schedule has it at update 4; the checkpoint's was 0.0"));
}

TEST_F(ChangedResume, AnotherRateOrScheduleTakesEffectAtOnce) {
  auto a = saving(8);
  a.learning_rate = 0.02;
  EXPECT_EQ(resumed(a), expected(a));
  a.lr_scheduler_type = "cosine";
  a.warmup_steps = 6;
  EXPECT_EQ(resumed(a), expected(a));
  a.lr_scheduler_type = "constant";
  a.warmup_steps = 0;
  EXPECT_EQ(resumed(a), std::vector<double>(4, 0.02));
}

TEST_F(ChangedResume, AnUnchangedRunIsResumedToTheBitWithoutALine) {
  auto a = saving(8);
  a.lr_scheduler_type = "cosine";
  auto whole = make_model(), resumed = make_model();
  Trainer(whole, a, {.train_dataset = make_samples(40)}).train();
  a.resume_from_checkpoint = (folder / "run/checkpoint-4").string();
  lines.clear();
  Trainer(resumed, a, {.train_dataset = make_samples(40)}).train();
  EXPECT_TRUE(at::equal(whole->out->weight, resumed->out->weight));
  EXPECT_THAT(log(), Not(HasSubstr("schedule has it")));
}

TEST_F(ChangedResume, ARunThatIsOverSaysThatNothingIsLeft) {
  auto a = saving(3);
  EXPECT_TRUE(resumed(a).empty());
  EXPECT_THAT(log(), HasSubstr("nothing is left to train: the checkpoint is of update 4, and this run ends with update 3"));
  a = saving(4);
  EXPECT_TRUE(resumed(a).empty());
  EXPECT_THAT(log(), HasSubstr("nothing is left to train"));
}

TEST_F(ChangedResume, ACheckpointOfTransformersIsNamed) {
  fs::create_directories(folder / "run/checkpoint-3");
  for (const char* name : {"model.safetensors", "optimizer.pt", "trainer_state.json"})
    std::ofstream(folder / "run/checkpoint-3" / name) << "x";
  auto a = arguments(2);
  a.resume_from_checkpoint = (folder / "run/checkpoint-3").string();
  const auto told = [&] { return error_of([&] { Trainer(make_model(), a, {.train_dataset = make_samples(8)}).train(); }); };
  EXPECT_THAT(told(),
              AllOf(HasSubstr("is a checkpoint of Hugging Face's Trainer"), HasSubstr("gannet::from_pretrained<Model>(")));
  a.resume_from_checkpoint = "last";
  EXPECT_EQ(told(), "no error");
  EXPECT_THAT(log(), HasSubstr("run/checkpoint-3 is a checkpoint of Hugging Face's Trainer, which is not resumed"));
  fs::remove(folder / "run/checkpoint-3/optimizer.pt");
  a.resume_from_checkpoint = (folder / "run/checkpoint-3").string() + "/";
  EXPECT_THAT(told(), HasSubstr("holds only weights (it has no manifest.json)"));
}

// Both fractions of 7 updates: evaluations at 2 4 6 7, checkpoints at 3 6 7.
TEST_F(ChangedResume, StepsOfTheBestModelThatDoNotFitAreFoundBeforeTraining) {
  const auto told = [&](double eval_steps, double save_steps, int64_t updates) {
    auto a = arguments(updates);
    a.eval_strategy = a.save_strategy = "steps";
    a.eval_steps = eval_steps;
    a.save_steps = save_steps;
    a.load_best_model_at_end = true;
    int64_t steps = 0;
    const std::string error = error_of([&] {
      Trainer trainer(make_model(), a, {.train_dataset = make_samples(40), .eval_dataset = make_samples(4)});
      for (auto& step : trainer.steps()) steps = step.global_step();
    });
    EXPECT_EQ(steps, error == "no error" ? updates : 0);
    fs::remove_all(folder);
    return error;
  };
  EXPECT_THAT(told(0.2, 4, 14),
              AllOf(HasSubstr("of 14 updates, every 3 are evaluated and every 4 are saved (eval_steps 0.2, save_steps 4.0)"),
                    HasSubstr("give save_steps 6")));
  EXPECT_THAT(told(0.2, 0.4, 7), HasSubstr("of 7 updates, every 2 are evaluated and every 3 are saved"));
  EXPECT_EQ(told(0.2, 6, 14), "no error");
  EXPECT_EQ(told(0.2, 0.4, 10), "no error");
}

}  // namespace
