// Reports of a real run: the metrics file, the monitors, the log and the trace of an engine on one
// rank.
#include <gmock/gmock.h>

#include <cmath>

#include "support.h"

namespace gannet::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::SizeIs;

TEST_F(Runs, TheMetricsFileTellsOfTheRunItsStepsAndItsEvents) {
  const Dict config = with_metrics(config_with({{"gradient_accumulation_steps", 2}}));
  std::vector<double> losses;
  {
    auto engine = initialize(make_net(), {.config = config}).engine;
    losses = train(*engine, 3);
    engine->save_checkpoint(at("run1"));
  }
  const auto lines = lines_of(at("metrics.jsonl"));
  ASSERT_THAT(lines, SizeIs(1 + 3 + 1));
  const Json& run = lines[0];
  EXPECT_EQ(run["kind"], "run");
  EXPECT_EQ(run["schema"], 1);
  EXPECT_EQ(run["parameters"], 8 * 16 + 16 + 16 * 4 + 4);
  EXPECT_EQ(run["train_batch_size"], 8);
  EXPECT_EQ(run["micro_batch_size"], 4);
  EXPECT_EQ(run["gradient_accumulation_steps"], 2);
  EXPECT_EQ(run["world_size"], 1);
  EXPECT_EQ(run["global_step"], 0);
  EXPECT_EQ(run["zero_stage"], 0);
  EXPECT_EQ(run["dtype"], "fp32");
  EXPECT_THAT(run["started_at"].get<std::string>(), testing::MatchesRegex("20[0-9-]{8}T[0-9:]{8}Z"));
  EXPECT_THAT(run["config"], Contains(Json{{"key", "optimizer.params.lr"}, {"value", 0.01}, {"origin", "code"}}));
  EXPECT_EQ(run["plugins"][0]["kind"], "accelerator");
  for (const char* key :
       {"host", "system", "distribution", "processor", "cores", "instruction_sets", "memory_bytes", "memory_limit_bytes"})
    EXPECT_TRUE(run["machine"].contains(key)) << key;

  double before = 0;
  for (int64_t i = 1; i <= 3; ++i) {
    const Json& step = lines[static_cast<size_t>(i)];
    EXPECT_EQ(step["kind"], "step");
    EXPECT_EQ(step["step"], i);
    EXPECT_EQ(step["samples"], 8 * i);
    EXPECT_FLOAT_EQ(step["loss"].get<float>(), static_cast<float>(losses[static_cast<size_t>(i - 1)]));
    EXPECT_EQ(step["lr"], Json::array({0.01}));
    EXPECT_GT(step["grad_norm"].get<double>(), 0);
    EXPECT_EQ(step["loss_scale"], 1);
    EXPECT_EQ(step["applied"], true);
    EXPECT_EQ(step["reason"], "");
    EXPECT_EQ(step["counts"], (Json{{"tokens", 20}}));
    EXPECT_EQ(step["values"], (Json{{"accuracy", 0.5}}));
    EXPECT_GT(step["memory_bytes"].get<int64_t>(), 1 << 20);
    EXPECT_GE(step["time"].get<double>(), before);
    before = step["time"];
    double sum = 0;
    for (const auto& [name, seconds] : step["phases"].items()) {
      EXPECT_GE(seconds.get<double>(), 0) << name;
      sum += seconds.get<double>();
    }
    EXPECT_LE(sum, step["seconds"].get<double>());
    EXPECT_GT(sum, 0);
    for (const char* name : {"forward", "backward", "check", "update", "reduce"})
      EXPECT_TRUE(step["phases"].contains(name)) << name;
    EXPECT_FALSE(step["phases"].contains("gather"));
  }
  EXPECT_EQ(lines[4]["kind"], "event");
  EXPECT_EQ(lines[4]["what"], "checkpoint");
  EXPECT_THAT(lines[4]["text"].get<std::string>(),
              testing::AllOf(HasSubstr("saved " + at("run1/global_step3") + ", "), HasSubstr("kB in ")));
}

TEST_F(Runs, AResumedRunAppendsAndGoesOnCounting) {
  const Dict config = with_metrics(config_with({}));
  {
    auto engine = initialize(make_net(), {.config = config}).engine;
    train(*engine, 2);
    engine->save_checkpoint(at("run1"));
    train(*engine, 1);
  }
  std::ofstream(at("metrics.jsonl"), std::ios::app) << "{\"kind\": \"step\", \"st";  // the last words of a run that was killed
  {
    auto engine = initialize(make_net(), {.config = config}).engine;
    engine->load_checkpoint(at("run1"));
    train(*engine, 1);
  }
  std::vector<std::string> told;
  std::ifstream file(at("metrics.jsonl"));
  int torn = 0;
  for (std::string line; std::getline(file, line);) {
    const Json read = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (read.is_discarded())
      ++torn;
    else
      told.push_back(read["kind"] == "step"
                         ? "step " + std::to_string(read["step"].get<int>()) + " of " + std::to_string(read["samples"].get<int>())
                     : read["kind"] == "event" ? read["what"].get<std::string>()
                                               : "run");
  }
  EXPECT_EQ(torn, 1);
  EXPECT_THAT(told, testing::ElementsAre("run", "step 1 of 4", "step 2 of 8", "checkpoint", "step 3 of 12", "run", "resume",
                                         "step 3 of 12"));
}

TEST_F(Runs, WhatIsRecordedAfterTheLastStepIsALineAtTheEnd) {
  Dict config = with_metrics(config_with({}));
  config["csv_monitor"] = Dict{{"enabled", true}, {"output_path", folder().string()}, {"job_name", "csv"}};
  auto engine = initialize(make_net(), {.config = config}).engine;
  engine->record("eval/loss", 3);
  train(*engine, 2);
  engine->record("eval/loss", 1.5);
  engine.reset();
  EXPECT_EQ(lines_of(at("metrics.jsonl"), "step").at(0)["values"], (Json{{"eval/loss", 3.0}, {"accuracy", 0.5}}));
  const auto late = lines_of(at("metrics.jsonl"), "values");
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0]["step"], 2);
  EXPECT_EQ(late[0]["values"], (Json{{"eval/loss", 1.5}}));
  const int64_t samples = late[0]["samples"];
  EXPECT_THAT(read_file(at("csv/eval_loss.csv")), testing::EndsWith("\n" + std::to_string(samples) + ",1.5\r\n"));
}

TEST_F(Runs, ASkippedStepIsToldWithItsReason) {
  auto engine =
      initialize(make_net(), {.config = with_metrics(config_with(
                                  {{"fp16", Dict{{"enabled", true}, {"initial_scale_power", 40}, {"hysteresis", 1}}}}))})
          .engine;
  train(*engine, 1);
  engine.reset();
  const Json step = lines_of(at("metrics.jsonl"), "step").at(0), event = lines_of(at("metrics.jsonl"), "event").at(0);
  EXPECT_EQ(step["applied"], false);
  EXPECT_THAT(step["reason"].get<std::string>(), HasSubstr("step 1 skipped: the gradient of 'first.weight' is"));
  EXPECT_TRUE(step["grad_norm"].is_null());
  EXPECT_EQ(step["loss_scale"], 1099511627776.0) << "what the step was taken with";
  EXPECT_EQ(event["what"], "skip");
  EXPECT_EQ(event["text"], step["reason"]);
}

TEST_F(Runs, AnErrorThatEndsAStepIsInTheFileBeforeItIsThrown) {
  auto engine = initialize(make_net(), {.config = with_metrics(config_with({}))}).engine;
  train(*engine, 1);
  auto [x, y] = make_batch(0, 4);
  const at::Tensor loss = engine->forward(x * NAN, y);
  EXPECT_THROW(engine->backward(loss), Error);
  const auto lines = lines_of(at("metrics.jsonl"));  // the engine lives
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(lines[1]["kind"], "step");
  EXPECT_EQ(lines[2]["what"], "error");
  EXPECT_EQ(lines[2]["text"], "the loss of step 2 is nan");
}

TEST_F(Runs, CsvAndTensorBoardAreFedByTheSameStepsWithSamplesAsTheirX) {
  Dict config = config_with(
      {{"wall_clock_breakdown", true},
       {"scheduler", Dict{{"type", "WarmupLR"}, {"params", Dict{{"warmup_num_steps", 10}, {"warmup_max_lr", 0.01}}}}}});
  config["csv_monitor"] = Dict{{"enabled", true}, {"output_path", at("csv")}, {"job_name", "job"}};
  config["tensorboard"] = Dict{{"enabled", true}, {"output_path", at("tb")}};
  std::string expected = "step,lr\r\n";
  {
    auto engine = initialize(make_net(), {.config = config}).engine;
    for (int64_t i = 1; i <= 2; ++i) {
      train(*engine, 1);
      expected +=
          std::to_string(4 * i) + "," + Value(engine->get_lr()[0]).to_json() + "\r\n";  // after the schedule's step, as DeepSpeed
    }
  }
  EXPECT_EQ(read_file(at("csv/job/Train_Samples_lr.csv")), expected);
  for (const char* name : {"train_loss", "grad_norm", "elapsed_time_ms_forward", "elapsed_time_ms_backward",
                           "elapsed_time_ms_backward_inner", "elapsed_time_ms_backward_allreduce", "elapsed_time_ms_step",
                           "tokens", "tokens_per_second", "accuracy", "step_seconds"}) {
    const std::string text = read_file(at("csv/job/Train_Samples_") + name + ".csv");
    EXPECT_THAT(text, testing::StartsWith(std::string("step,") + name + "\r\n4,")) << name;
    EXPECT_THAT(text, HasSubstr("\r\n8,")) << name;
  }
  EXPECT_FALSE(fs::exists(at("csv/job/Train_Samples_loss_scale.csv"))) << "there is none outside of fp16";
  std::vector<fs::path> events(fs::directory_iterator(at("tb/DeepSpeedJobName")), {});
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_THAT(read_file(events[0].string()),
              testing::AllOf(HasSubstr("Train/Samples/lr"), HasSubstr("Train/Samples/elapsed_time_ms_backward_allreduce"),
                             HasSubstr("brain.Event:2")));
}

TEST_F(Runs, TheBreakdownIsLoggedForEachMicroBatchAndForTheStep) {
  auto engine =
      initialize(make_net(), {.config = config_with({{"wall_clock_breakdown", true}, {"gradient_accumulation_steps", 2}})})
          .engine;
  notes_.clear();
  train(*engine, 2);
  ASSERT_THAT(notes_, SizeIs(6));
  for (const size_t i : {0, 1, 3, 4}) EXPECT_THAT(notes_[i], testing::StartsWith("time (ms) | fwd_microstep: ")) << i;
  for (const size_t i : {2, 5})
    EXPECT_THAT(notes_[i], testing::ContainsRegex("^time \\(ms\\) \\| fwd: [0-9.]+ \\| bwd: [0-9.]+ \\| bwd_inner: [0-9.]+ \\| "
                                                  "bwd_allreduce: [0-9.]+ \\| step: [0-9.]+$"))
        << i;
}

TEST_F(Runs, AMonitorThatCannotWriteStopsNothing) {
  Dict config = config_with({});
  config["gannet"] = Dict{{"metrics", Dict{{"path", "/dev/full"}}},
                          {"trace", Dict{{"path", at("metrics.jsonl/trace.json")}, {"first_step", 1}}}};
  std::ofstream(at("metrics.jsonl")) << "a file where a folder should be";
  config["csv_monitor"] = Dict{{"enabled", true}, {"output_path", "/proc/none"}};
  auto engine = initialize(make_net(), {.config = config}).engine;
  train(*engine, 3);
  engine->save_checkpoint(at("run1"));
  EXPECT_EQ(engine->global_steps(), 3);
  engine.reset();
  EXPECT_THAT(warnings_, testing::UnorderedElementsAre(HasSubstr("gannet.metrics: cannot write /dev/full"),
                                                       HasSubstr("csv_monitor: cannot write /proc/none"),
                                                       HasSubstr("gannet.trace: cannot write")));
}

TEST_F(Runs, WithoutAMonitorThereIsNoFileAndTheCallsDoNothing) {
  const auto before = fs::current_path();
  fs::current_path(folder());
  {
    auto engine = initialize(make_net(), {.config = config_with({})}).engine;
    train(*engine, 2);
    EXPECT_FALSE(engine->impl().reporter || engine->impl().trace);
  }
  fs::current_path(before);
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(Runs, AnEvaluationIsNoPartOfTheLossAndHasAPhaseOfItsOwn) {
  auto engine = initialize(make_net(), {.config = with_metrics(config_with({}))}).engine;
  const double loss = train(*engine, 1)[0];
  engine->eval();
  {
    at::NoGradGuard no_grad;
    auto [x, y] = make_batch(99, 4);
    engine->forward(x, y);
  }
  engine->train();
  train(*engine, 1);
  engine.reset();
  const auto steps = lines_of(at("metrics.jsonl"), "step");
  EXPECT_FLOAT_EQ(steps[0]["loss"].get<float>(), static_cast<float>(loss));
  EXPECT_FALSE(steps[0]["phases"].contains("evaluate"));
  EXPECT_TRUE(steps[1]["phases"].contains("evaluate"));
}

TEST_F(Runs, ALossThatTheProgramHasWeightedItselfIsToldAsItWasMeant) {
  auto engine = initialize(make_net(), {.config = with_metrics(config_with({{"gradient_accumulation_steps", 2}}))}).engine;
  double mean = 0;
  for (int64_t a = 0; a < 2; ++a) {
    auto [x, y] = make_batch(a, 4);
    const at::Tensor loss = engine->forward(x, y);
    mean += loss.item<double>() / 2;
    if (a == 0) {
      engine->backward(loss * 0.25, {.retain_graph = true});
      engine->backward(loss * 0.75);
    } else {
      engine->backward(loss / 2, {.scale_wrt_gas = false});
    }
    engine->step();
  }
  engine.reset();
  EXPECT_FLOAT_EQ(lines_of(at("metrics.jsonl"), "step").at(0)["loss"].get<float>(), static_cast<float>(mean));
}

TEST_F(Runs, PagesOfADriveAreAPhaseAndInTheTrace) {
  Dict config = with_metrics(config_with({}));
  config["zero_optimization"] =
      Dict{{"stage", 3},
           {"stage3_param_persistence_threshold", 0},
           {"offload_optimizer", Dict{{"device", "nvme"}, {"nvme_path", fs::absolute(at("swap")).string()}}}};
  fs::create_directories(at("swap"));
  config["gannet"].as_dict()["trace"] = Dict{{"path", at("trace.json")}, {"first_step", 2}, {"last_step", 2}};
  {
    auto engine = initialize(make_net(), {.config = config}).engine;
    train(*engine, 3);
  }
  for (const Json& step : lines_of(at("metrics.jsonl"), "step")) EXPECT_TRUE(step["phases"].contains("offload")) << step;
  std::vector<std::string> names;
  for (const Json& event : Json::parse(read_file(at("trace.json")))) {
    names.push_back(event["name"]);
    if (event["ph"] == "X") {
      EXPECT_EQ(event["args"]["step"], 2) << event;
    }
  }
  for (const char* name : {"forward", "backward", "step", "update", "offload", "read page 0", "write page 0"})
    EXPECT_THAT(names, Contains(name));
}

}  // namespace
}  // namespace gannet::test
