// A stage that dies, stops or throws in the middle of a step: the others say so within seconds, and
// the newest checkpoint loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "pipeline/run.h"
#include "plugin/support.h"

namespace {

using namespace gannet::test;
using ranks::run_ranks;
using testing::HasSubstr;

// FAULT of the rank VICTIM in the second step: "forward", "inputs", "weights" (killed there: in a
// whole backward or in one of its passes), "stop", "throw".
RANK_BODY(a_stage_fails) {
  gannet::Dict config = pipe_config("1");
  gannet::Dict section{{"deadline_seconds", 5}};
  if (!variable("SCHEDULE").empty()) section["pipeline"] = gannet::Dict{{"schedule", variable("SCHEDULE")}};
  config["gannet"] = section;
  PipeRun run(config, {.net = {.blocks = 6}});  // some on each of three stages
  const std::string folder = variable("FOLDER") + "/saved", fault = variable("FAULT");
  if (fault == "load") {
    run.engine->load_checkpoint(folder);
    run.train(1, 1);
    return;
  }
  run.train(0, 1);
  run.engine->save_checkpoint(folder);
  if (std::to_string(gannet::init_distributed()->rank()) == variable("VICTIM")) {
    auto calls = std::make_shared<int>(0);
    for (const auto& block : run.net->blocks)
      block->on_call = [calls, fault](const at::Tensor& x) {
        if (++*calls < 2 || fault == "weights") return;
        if (fault == "inputs") {
          x.register_hook([](const at::Tensor&) { raise(SIGKILL); });
          return;
        }
        if (fault == "stop") raise(SIGSTOP);
        if (fault == "throw") throw std::runtime_error("a layer fails");
        raise(SIGKILL);
      };
    if (fault == "weights")
      for (const at::Tensor& parameter : run.engine->module()->parameters())
        parameter.register_hook([](const at::Tensor&) { raise(SIGKILL); });
  }
  try {
    run.train(1, 1);
  } catch (const std::exception& error) {
    std::cout << "ended: " << error.what() << std::endl;
    return;
  }
  throw std::runtime_error("the step went through");
}

struct Fault {
  const char* fault;
  uint32_t victim;
  const char* expected;
  const char* schedule = "1f1b";
};

void play(const Fault& fault) {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> environment = {
      {"PIPE", "3"}, {"FOLDER", folder.string()}, {"SCHEDULE", fault.schedule}};
  ranks::Options options{.environment = environment, .limit = std::chrono::seconds(90)};
  options.environment.insert({{"FAULT", fault.fault}, {"VICTIM", std::to_string(fault.victim)}});
  if (fault.fault == std::string("stop")) options.stuck = {fault.victim};
  const auto outcomes = run_ranks("a_stage_fails", 3, options);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    if (rank == fault.victim && fault.fault != std::string("throw")) continue;
    EXPECT_EQ(outcomes[rank].status, 0) << outcomes[rank].output;
    EXPECT_THAT(outcomes[rank].output, HasSubstr("ended: ")) << fault.fault << ", rank " << rank;
    if (rank != fault.victim) EXPECT_THAT(outcomes[rank].output, HasSubstr(fault.expected)) << fault.fault << ", rank " << rank;
    if (fault.fault == std::string("stop") && rank != fault.victim)
      EXPECT_THAT(outcomes[rank].output, HasSubstr(rank == 0 ? "stage 0 was waiting for B of micro-batch 0 from stage 1"
                                                             : "stage 2 was waiting for F of micro-batch 0 from stage 1"));
  }
  options = {.environment = environment};
  options.environment.insert({"FAULT", "load"});
  ranks::expect_all_succeed(run_ranks("a_stage_fails", 3, options));
}

TEST(PipelineFaults, AKilledStageIsNamedByTheOthers) {
  play({"forward", 1, "rank 1"});
  play({"weights", 2, "rank 2"});
  play({"inputs", 1, "rank 1", "zb-h1"});
  if (!ranks::is_full()) return;
  for (const uint32_t victim : {0u, 1u, 2u})
    for (const char* schedule : {"gpipe", "zb-h1", "zb-v"})
      for (const char* fault : {"forward", "inputs", "weights"}) {
        if (victim == 0 && fault == std::string("inputs")) continue;  // its layers' inputs may need no gradient
        SCOPED_TRACE(std::string(schedule) + " " + fault + " " + std::to_string(victim));
        play({fault, victim, victim == 0 ? "rank 0" : victim == 1 ? "rank 1" : "rank 2", schedule});
      }
}
// Every stage fails by itself, with messages on the way to it: none of them waits for those.
RANK_BODY(all_stages_fail) {
  gannet::Dict config = pipe_config("0");
  config["gannet"] = gannet::Dict{{"deadline_seconds", 5}, {"pipeline", gannet::Dict{{"schedule", "zb-v"}}}};
  PipeRun run(config, {.net = {.blocks = 3}});
  run.train(0, 3);
  for (const at::Tensor& parameter : run.engine->module()->parameters())
    parameter.register_hook([](const at::Tensor&) { throw std::runtime_error("a hook fails"); });
  try {
    run.train(3, 1);
  } catch (const std::exception& error) {
    std::cout << "ended: " << error.what() << std::endl;
    return;
  }
  throw std::runtime_error("the step went through");
}
TEST(PipelineFaults, StagesThatFailTogetherAllEnd) {
  const TemporaryFolder folder;
  const auto outcomes = run_ranks(
      "all_stages_fail", 2, {.environment = {{"PIPE", "2"}, {"FOLDER", folder.string()}}, .limit = std::chrono::seconds(60)});
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("ended: ")) << outcome.output;
  }
}

TEST(PipelineFaults, AnExceptionInALayerEndsTheStepOfEveryStage) { play({"throw", 1, "a layer fails"}); }
TEST(PipelineFaults, AStoppedStageIsNamedWithinTheDeadline) { play({"stop", 1, "rank 1"}); }

}  // namespace
