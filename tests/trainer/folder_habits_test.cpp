// Habits of Hugging Face Trainer users with stored runs: states of callbacks, folders that are
// moved or shared, files that a killed run did not write, a second train().
#include <limits>
#include <nlohmann/json.hpp>

#include "habits.h"

namespace {

using namespace trainer_test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

struct Counter {
  int64_t by;
  std::shared_ptr<int64_t> count = std::make_shared<int64_t>(0);
  void on_step_end(const gannet::TrainerEvent&) { *count += by; }
  gannet::Value save() const { return gannet::Dict{{"count", *count}}; }
  void load(const gannet::Value& value) { *count = value.at("count").as_int(); }
};

TEST_F(Habits, CallbacksOfOneTypeGetTheirOwnStatesBack) {
  auto a = arguments(2);
  a.save_strategy = "steps";
  a.save_steps = 2;
  const Counter ones{1}, tens{10};
  Trainer(make_model(), a, {.train_dataset = make_samples(16), .callbacks = {ones, tens}}).train();
  const auto state = nlohmann::json::parse(text_of(folder / "run/checkpoint-2/trainer_state.json"));
  ASSERT_EQ(state["stateful_callbacks"].size(), 1u);
  EXPECT_EQ(state["stateful_callbacks"].begin()->size(), 2u);
  a.max_steps = 3;
  a.resume_from_checkpoint = "last";
  const Counter later_ones{1}, later_tens{10};
  Trainer(make_model(), a, {.train_dataset = make_samples(16), .callbacks = {later_ones, later_tens}}).train();
  EXPECT_EQ(*later_ones.count, 3);
  EXPECT_EQ(*later_tens.count, 30);
}

TEST_F(Habits, MetricsThatAreNotFiniteAreKeptInCheckpoints) {
  auto a = arguments(2);
  a.eval_strategy = a.save_strategy = "steps";
  a.eval_steps = a.save_steps = 1;
  a.metric_for_best_model = "score";
  const auto score = [](const gannet::EvalPrediction&) -> gannet::Metrics {
    return {{"score", std::nan("")}, {"other", std::numeric_limits<double>::infinity()}};
  };
  Trainer(make_model(), a, {.train_dataset = make_samples(8), .eval_dataset = make_samples(4), .compute_metrics = score}).train();
  const auto state = nlohmann::json::parse(text_of(folder / "run/checkpoint-2/trainer_state.json"));
  EXPECT_TRUE(state["log_history"][0]["eval_score"].is_null());
  EXPECT_TRUE(state["best_metric"].is_null());
  a.max_steps = 3;
  a.resume_from_checkpoint = "last";
  Trainer resumed(make_model(), a, {.train_dataset = make_samples(8), .eval_dataset = make_samples(4), .compute_metrics = score});
  EXPECT_EQ(resumed.train().global_step, 3);
  EXPECT_TRUE(std::isnan(resumed.state().log_history[0].find("eval_score")->as_number()));
}

TEST_F(Habits, OnlyThisRunsCheckpointsAreRotated) {
  auto a = arguments(6);
  a.save_strategy = "steps";
  a.save_steps = 6;
  Trainer(make_model(), a, {.train_dataset = make_samples(40)}).train();
  // Another run, in the same folder, of lower numbers.
  a.max_steps = 3;
  a.save_steps = 1;
  a.save_total_limit = 1;
  Trainer(make_model(), a, {.train_dataset = make_samples(40)}).train();
  EXPECT_THAT(checkpoints(), UnorderedElementsAre("checkpoint-3", "checkpoint-6"));
  // Those that it saved before it was resumed are its own.
  a.max_steps = 5;
  a.save_total_limit = 2;
  a.resume_from_checkpoint = "last";
  Trainer(make_model(), a, {.train_dataset = make_samples(40)}).train();
  EXPECT_THAT(checkpoints(), UnorderedElementsAre("checkpoint-4", "checkpoint-5", "checkpoint-6"));
}

// The best evaluation is that of update 1.
std::function<gannet::Metrics(const gannet::EvalPrediction&)> falling() {
  return [value = 100.0](const gannet::EvalPrediction&) mutable -> gannet::Metrics { return {{"score", --value}}; };
}

class WithBest : public Habits {
 protected:
  TrainingArguments with_best(int64_t steps) const {
    auto a = arguments(steps);
    a.eval_strategy = a.save_strategy = "steps";
    a.eval_steps = a.save_steps = 1;
    a.save_total_limit = 1;
    a.metric_for_best_model = "score";
    a.load_best_model_at_end = true;
    return a;
  }
  gannet::TrainerState train(const TrainingArguments& a) const {
    Trainer trainer(make_model(), a,
                    {.train_dataset = make_samples(40), .eval_dataset = make_samples(4), .compute_metrics = falling()});
    trainer.train();
    return trainer.state();
  }
};

TEST_F(WithBest, TheBestCheckpointIsKnownUnderEveryNameOfItsFolder) {
  auto a = with_best(2);
  train(a);
  fs::create_directory_symlink(folder / "run", folder / "link");
  const std::string names[] = {(folder / "run/").string() + "/", (folder / "link").string(), (folder / "run/../run").string()};
  int64_t steps = 2;
  for (const std::string& name : names) {
    a.output_dir = name;
    a.max_steps = ++steps;
    a.resume_from_checkpoint = "last";
    const auto state = train(a);
    EXPECT_EQ(state.best_global_step, 1);
    EXPECT_THAT(checkpoints(), UnorderedElementsAre("checkpoint-1", "checkpoint-" + std::to_string(steps))) << name;
  }
}

TEST_F(WithBest, AFolderThatWasMovedResumesAndFindsItsBestModel) {
  train(with_best(2));
  fs::rename(folder / "run", folder / "moved");
  auto a = with_best(3);
  a.output_dir = folder / "moved";
  a.resume_from_checkpoint = "last";
  const auto state = train(a);
  EXPECT_EQ(state.global_step, 3);
  EXPECT_EQ(state.best_model_checkpoint, (folder / "moved/checkpoint-1").string());
  EXPECT_THAT(checkpoints("moved"), UnorderedElementsAre("checkpoint-1", "checkpoint-3"));
  EXPECT_THAT(log(), HasSubstr("is now " + (folder / "moved/checkpoint-1").string()));
  // Where it is gone the run says so, and continues.
  fs::remove_all(folder / "moved/checkpoint-1");
  a.max_steps = 4;
  EXPECT_EQ(train(a).best_model_checkpoint, "");
  EXPECT_THAT(log(), HasSubstr("is not there any more"));
}

TEST_F(Habits, FilesThatAKilledRunDidNotWriteAreWrittenByTheNext) {
  auto a = arguments(2);
  a.save_strategy = "steps";
  a.save_steps = 1;
  Trainer(make_model(), a, {.train_dataset = make_samples(8)}).train();
  const fs::path last = folder / "run/checkpoint-2";
  const std::string weights = text_of(last / "model.safetensors"), state = text_of(last / "trainer_state.json");
  for (const char* name : {"model.safetensors", "trainer_state.json", "training_args.json"}) fs::remove(last / name);
  a.resume_from_checkpoint = "last";
  EXPECT_EQ(Trainer(make_model(), a, {.train_dataset = make_samples(8)}).train().global_step, 2);
  EXPECT_THAT(log(), HasSubstr("ended before model.safetensors and trainer_state.json were written"));
  EXPECT_EQ(text_of(last / "model.safetensors"), weights);
  EXPECT_EQ(text_of(last / "trainer_state.json"), state);
  // And where the newest checkpoint itself is not whole, the one before it is taken.
  for (const auto& entry : fs::directory_iterator(last))
    if (entry.path().filename().string().starts_with("rank-")) fs::resize_file(entry.path(), 10);
  Trainer(make_model(), a, {.train_dataset = make_samples(8)}).train();
  EXPECT_THAT(log(), HasSubstr("checkpoint-1 after update 1"));
}

// A visible checkpoint has all of its files: a run that is killed at any moment leaves none without
// its config.json.
TEST_F(Habits, ACheckpointGetsItsNameWhenAllOfItsFilesAreThere) {
  auto a = arguments(2);
  a.save_strategy = "steps";
  a.save_steps = 1;
  for (const bool only_model : {false, true}) {
    a.save_only_model = only_model;
    std::vector<int64_t> sizes;
    bool fails = false;
    const auto files = [&](const std::string& place) {
      const std::string name = "checkpoint-" + std::to_string(sizes.size() + 1);
      EXPECT_FALSE(fs::exists(fs::path(place).parent_path() / name));
      EXPECT_TRUE(fs::exists(fs::path(place) / "model.safetensors"));
      EXPECT_TRUE(fs::exists(fs::path(place) / "trainer_state.json"));
      if (fails) throw std::runtime_error("no room for config.json");
      std::ofstream(fs::path(place) / "config.json") << "{}";
      sizes.push_back(static_cast<int64_t>(sizes.size()));
    };
    gannet::TrainerParts<TokensImpl> parts{.train_dataset = make_samples(16), .checkpoint_files = files};
    Trainer(make_model(), a, parts).train();
    ASSERT_EQ(sizes.size(), 2u);
    for (const char* name : {"checkpoint-1", "checkpoint-2"})
      for (const char* file : {"config.json", "model.safetensors", "training_args.json"})
        EXPECT_TRUE(fs::exists(folder / "run" / name / file)) << name << " " << file;
    // A mistake in it is the save's error, and leaves the checkpoints that were there.
    fails = true;
    sizes.clear();
    a.output_dir = folder / "other";
    EXPECT_THROW(Trainer(make_model(), a, parts).train(), std::exception);
    EXPECT_TRUE(checkpoints("other").empty());
    a.output_dir = folder / "run";
    fs::remove_all(folder);
  }
}

TEST_F(Habits, TheFolderOfARunInPlaceOfACheckpointIsRefusedWithTheNewestOfIt) {
  auto a = arguments(10);
  a.save_strategy = "steps";
  a.save_steps = 1;
  Trainer(make_model(), a, {.train_dataset = make_samples(64)}).train();
  for (const std::string slash : {"", "/"}) {
    a.resume_from_checkpoint = (folder / "run").string() + slash;
    const std::string told = error_of([&] { Trainer(make_model(), a, {.train_dataset = make_samples(64)}).train(); });
    EXPECT_THAT(told, HasSubstr("which is a folder of checkpoints and not one of them"));
    EXPECT_THAT(told, HasSubstr("run/checkpoint-10, or \"last\""));
  }
}

TEST_F(Habits, WhatIsNoCheckpointToResumeFromIsNamedAsItWasGiven) {
  auto a = arguments(3);
  a.save_strategy = "steps";
  a.save_steps = 1;
  Trainer(make_model(), a, {.train_dataset = make_samples(64)}).train();
  const auto told = [&](const fs::path& path) {
    a.resume_from_checkpoint = path.string();
    const std::string text = error_of([&] { Trainer(make_model(), a, {.train_dataset = make_samples(64)}).train(); });
    EXPECT_THAT(text, HasSubstr("resume_from_checkpoint names " + path.string() + ", which "));
    EXPECT_THAT(text, Not(HasSubstr("tag")));
    return text;
  };
  const std::string run = (folder / "run").string();
  EXPECT_THAT(told(folder / "run/checkpoint-7"),
              AllOf(HasSubstr("does not exist"),
                    HasSubstr("the newest that are there: " + run + "/checkpoint-3, " + run + "/checkpoint-2")));
  EXPECT_THAT(told(folder / "nowhere"), AllOf(HasSubstr("does not exist"), HasSubstr("output_dir/checkpoint-N")));
  EXPECT_THAT(told(folder / "run/checkpoint-3/manifest.json"), AllOf(HasSubstr("is a file, and a checkpoint is a folder"),
                                                                     HasSubstr("give its folder, " + run + "/checkpoint-3")));
  fs::create_directories(folder / "empty");
  EXPECT_THAT(told(folder / "empty"), HasSubstr("is a folder without a checkpoint: it has no manifest.json"));
  // As a program's own loop names them: the number at the end says which is newest.
  fs::rename(folder / "run/checkpoint-2", folder / "run/step8");
  fs::rename(folder / "run/checkpoint-3", folder / "run/step10");
  fs::remove_all(folder / "run/checkpoint-1");
  EXPECT_THAT(told(folder / "run"),
              AllOf(HasSubstr("is a folder of checkpoints and not one of them"), HasSubstr("give " + run + "/step10, or")));
}

// Only weights of another run, or a copy that was interrupted: found at the start, and not at that
// update.
TEST_F(Habits, AFolderThatASaveCouldNotReplaceIsFoundBeforeTraining) {
  auto a = arguments(4);
  a.save_strategy = "steps";
  a.save_steps = 3;
  a.save_only_model = true;
  Trainer(make_model(), a, {.train_dataset = make_samples(64)}).train();
  EXPECT_NO_THROW(Trainer(make_model(), a, {.train_dataset = make_samples(64)}).train());
  a.save_only_model = false;
  Trainer trainer(make_model(), a, {.train_dataset = make_samples(64)});
  EXPECT_THAT(error_of([&] { trainer.train(); }),
              HasSubstr(" is a folder that is not a whole checkpoint, where this run will save"));
  EXPECT_EQ(trainer.state().global_step, 0);
  for (const char* name : {"checkpoint-3", "checkpoint-4"}) fs::remove_all(folder / "run" / name);
  fs::create_directories(folder / "run/checkpoint-2/not saved to");
  EXPECT_EQ(trainer.train().global_step, 4);
}

// Folders of runs that were killed while saving or removing a checkpoint: as large as a checkpoint,
// and not in use.
TEST_F(Habits, WhatKilledRunsLeftHiddenIsRemovedByTheNextSave) {
  for (const char* name : {".checkpoint-7.weights", ".checkpoint-3.old", ".checkpoint-5.tmp", ".mine.old"})
    fs::create_directories(folder / "run" / name / "within");
  auto a = arguments(1);
  a.save_strategy = "steps";
  Trainer(make_model(), a, {.train_dataset = make_samples(16)}).train();
  std::vector<std::string> hidden;
  for (const auto& entry : fs::directory_iterator(folder / "run"))
    if (const std::string name = entry.path().filename(); entry.is_directory() && name.starts_with('.')) hidden.push_back(name);
  EXPECT_THAT(hidden, ElementsAre(".mine.old"));
}

TEST_F(Habits, ASecondTrainStartsOver) {
  auto a = arguments(4);
  int64_t begun = 0, steps = 0;
  struct Count {
    int64_t *begun, *steps;
    void on_train_begin(const gannet::TrainerEvent&) { ++*begun; }
    void on_step_end(const gannet::TrainerEvent&) { ++*steps; }
  };
  auto model = make_model();
  Trainer trainer(model, a, {.train_dataset = make_samples(16), .callbacks = {Count{&begun, &steps}}});
  const auto rates = rates_of(trainer);
  const at::Tensor before = model->embedding->weight.detach().clone();
  EXPECT_EQ(rates_of(trainer), rates);
  EXPECT_FALSE(at::equal(model->embedding->weight, before)) << "the same weights are trained further";
  EXPECT_EQ(trainer.state().global_step, 4);
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(steps, 8);
}

TEST_F(Habits, ASecondTrainRestartsTheConfigsScheduler) {
  auto a = arguments(3);
  a.deepspeed = R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "scheduler": {"type": "WarmupDecayLR",
    "params": {"total_num_steps": 3, "warmup_num_steps": 2, "warmup_max_lr": 0.01, "warmup_type": "linear"}}})";
  Trainer trainer(make_model(), a, {.train_dataset = make_samples(16)});
  const auto rates = rates_of(trainer);
  EXPECT_EQ(rates_of(trainer), rates);
  EXPECT_GT(rates[2], 0);
}

}  // namespace
