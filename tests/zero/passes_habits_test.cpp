// Steps of two passes under a program's ordinary habits: what happens between the passes, and what the author of a plugin does
// wrong.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>

#include "engine/impl.h"
#include "zero/passes.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::Value;
using ranks::expect;
using ranks::run_ranks;

// A parameter that is frozen between the passes has its value from before perturb(), also in the model; one that is thawed there
// is updated.
RANK_BODY(passes_freeze) {
  auto world = gannet::test::world();
  for (const std::string dtype : {"fp32", "bf16"})
    for (const Place& place : kPlaces) {
      const std::string where = dtype + " at " + text_of(place);
      auto engine = engine_of(two_pass_config(place, dtype_of(dtype)));
      const auto perturbed_step = [&](int64_t step, bool is_frozen) {
        backward(*engine, step);
        engine->perturb();
        engine->module()->middle->weight.requires_grad_(!is_frozen);
        backward(*engine, step);
        expect(engine->step().applied, where);
        expect_published(*engine, where + (is_frozen ? ", frozen" : ", thawed"));
        return engine->full_fp32_parameter("middle.weight").clone();
      };
      sam_step(*engine, 0);
      const at::Tensor before = engine->full_fp32_parameter("middle.weight").clone();
      expect(perturbed_step(1, true).equal(before), where + ": frozen, it stays");
      expect(!perturbed_step(2, false).equal(before), where + ": thawed, it is trained");
    }
}

// Parameters that train from a later step on, thawed before a step or between its passes.
RANK_BODY(passes_join) {
  auto world = gannet::test::world();
  for (const std::string dtype : {"fp32", "bf16"})
    for (const Place& place : kPlaces)
      for (const bool between : {false, true})
        for (const bool is_sam : {true, false}) {
          const std::string where = dtype + " at " + text_of(place) + (between ? " between" : " before");
          auto model = make_uneven();
          model->first->weight.requires_grad_(false);
          const Dict more = dtype_of(dtype);
          auto engine =
              gannet::initialize(model, {.config = is_sam ? two_pass_config(place, more) : second_config(place, more)}).engine;
          for (int64_t step = 0; step < 5; ++step) {
            if (step == 2 && !between) model->first->weight.requires_grad_(true);
            if (is_sam || engine->wants_second_gradient()) {
              backward(*engine, step, is_sam ? 0 : 1);
              is_sam ? engine->perturb() : engine->keep_second_gradient();
            }
            if (step == 2 && between) model->first->weight.requires_grad_(true);
            backward(*engine, step);
            expect(engine->step().applied, where);
            expect_published(*engine, where);
          }
          expect(engine->parameter_names().size() == 6, "it has joined");
        }
}

// The loss and the counts of a step are those of its first pass, even if the second one fails or is
// abandoned.
RANK_BODY(passes_count) {
  auto world = gannet::test::world();
  const std::string file = variable("FOLDER") + "/metrics.jsonl";
  std::vector<double> losses;
  {
    auto engine = engine_of(two_pass_config({1, "none"}, {{"gannet", Dict{{"metrics", Dict{{"path", file}}}}}}));
    for (int64_t step = 0; step < 4; ++step) {
      auto [x, y] = batch_of(step, 0, engine->rank());
      const auto loss = engine->forward(x, y);
      losses.push_back(engine->mean(loss.item<double>()));
      engine->backward(loss);
      engine->count("samples", 4);
      engine->perturb();
      if (step != 0) engine->zero_grad();
      if (step == 2) message_of([&, &x = x, &y = y] { engine->backward(engine->forward(x, y).expand({2})); });
      if (step == 3) {
        engine->abandon_step();
        backward(*engine, step);
        engine->count("samples", 4);
        engine->perturb();
      }
      backward(*engine, step);
      engine->step();
    }
  }
  if (world->rank() != 0) return;
  std::ifstream in(file);
  size_t steps = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.find("\"kind\": \"step\"") == std::string::npos) continue;
    const auto at = line.find("\"loss\": ") + 8;
    expect(std::abs(std::atof(line.c_str() + at) - losses.at(steps)) < 1e-5, std::to_string(losses.at(steps)) + " in " + line);
    contains(line, "\"samples\": " + std::to_string(4 * world->size()) + "}");
    ++steps;
  }
  ranks::same(steps, losses.size(), "steps");
}

// Micro-batches of a pass that end with different calls are of two passes.
RANK_BODY(passes_end_alike) {
  auto world = gannet::test::world();
  const Dict two{{"gradient_accumulation_steps", 2}};
  auto sam = engine_of(two_pass_config({1, "none"}, two));
  backward(*sam, 0, 0);
  sam->perturb();
  backward(*sam, 0, 1);
  contains(message_of([&] { sam->step(); }),
           "step() was called for micro-batch 2 of a pass whose micro-batches so far ended with perturb()");
  expect(sam->perturb().applied, "it can end with the same");
  sam->abandon_step();
  auto sophia = engine_of(second_config({1, "none"}, two));
  backward(*sophia, 0, 0);
  sophia->step();
  backward(*sophia, 0, 1);
  contains(message_of([&] { sophia->keep_second_gradient(); }), "so far ended with step()");
  sophia->zero_grad();
  for (int64_t micro = 0; micro < 2; ++micro) {
    backward(*sophia, 0, micro);
    sophia->keep_second_gradient();
  }
  for (int64_t micro = 0; micro < 2; ++micro) {
    backward(*sophia, 0, micro);
    sophia->step();
  }
  expect(sophia->was_step_applied(), "begun again, it can be taken");
}

// A checkpoint in the middle of a pass, of each call that ends its micro-batches; its resume, also in an engine that had begun
// another pass.
RANK_BODY(passes_resume_within) {
  auto world = gannet::test::world();
  for (const Place& place : {Place{0, "none"}, Place{1, "cpu"}, Place{2, "none"}, Place{3, "nvme"}}) {
    const Dict config = two_pass_config(place, {{"gradient_accumulation_steps", 2}});
    const auto end = [](auto& engine, bool is_last) { return is_last ? engine.step() : engine.perturb(); };
    const auto rest = [&](auto& engine, bool from_half) {
      for (const bool is_last : {false, true})
        for (int64_t micro = from_half && !is_last ? 1 : 0; micro < 2; ++micro) {
          backward(engine, 1, micro);
          end(engine, is_last);
        }
      expect(engine.was_step_applied() && engine.global_steps() == 1, text_of(place));
      return parameters_of(engine);
    };
    const at::Tensor expected = rest(*engine_of(config), false);
    const std::string folder = variable("FOLDER") + "/" + text_of(place);
    auto engine = engine_of(config);
    backward(*engine, 1, 0);
    engine->perturb();
    engine->save_checkpoint(folder);
    expect(rest(*engine, true).equal(expected), text_of(place) + ": a save changes nothing");
    backward(*engine, 5, 0);
    engine->step();
    engine->load_checkpoint(folder);
    expect(rest(*engine, true).equal(expected), text_of(place) + ": resumed");
  }
}

// Actions of the program between the passes, besides the two.
RANK_BODY(passes_meanwhile) {
  auto world = gannet::test::world();
  auto model = make_uneven();
  auto engine = gannet::initialize(model, {.config = two_pass_config({0, "none"})}).engine;
  backward(*engine, 0);
  const at::Tensor before = parameters_of(*engine);
  {
    gannet::zero::GatheredParameters guard(*engine, model->parameters(), {.write_from = 0});
    contains(message_of([&] { engine->perturb(); }), "perturb() was called while a zero::GatheredParameters guard holds");
  }
  engine->perturb();
  {
    const torch::NoGradGuard no_grad;
    model->first->bias.fill_(3);
  }
  contains(message_of([&] { backward(*engine, 0); }), "parameter 'first.bias' was written between perturb() and step()");
  engine->abandon_step();
  expect(parameters_of(*engine).equal(before), "nothing of it is left");

  backward(*engine, 0);
  engine->perturb();
  const auto second = [&] { gannet::initialize(model, {.config = two_pass_config({0, "none"})}); };
  contains(message_of(second), "or give it up (abandon_step()) before initialize()");
  const CapturedLog log;
  engine->set_train_batch_size(engine->train_batch_size() * 2);
  if (world->rank() == 0) contains(log.text(), "takes effect with step 2: step 1 has begun");
  backward(*engine, 0);
  expect(engine->step().applied, "a step has as many micro-batches in each pass");
  expect(engine->gradient_accumulation_steps() == 2, "and the next one has two");
  backward(*engine, 1);
  engine->perturb();
  engine->abandon_step();
  second();

  auto bare = gannet::initialize(make_uneven(), {.config = Dict{{"train_micro_batch_size_per_gpu", 4}}}).engine;
  contains(message_of([&] { bare->perturb(); }), "perturb() was called, but there is no optimizer");
}

// An error in the last micro-batch of a step, caught: what was on its way is no longer, and the step is taken at the next
// attempt.
RANK_BODY(error_while_buckets_fly) {
  auto world = gannet::test::world();
  for (const int64_t stage : {1, 2, 3}) {
    auto engine = engine_of(passes_config("SGD", {{"lr", 0.01}}, {stage, "none"}, {{"gradient_accumulation_steps", 2}}));
    for (int64_t step = 0; step < 3; ++step) {
      backward(*engine, step, 0);
      engine->step();
      contains(message_of([&] { backward(*engine, step, 1, std::numeric_limits<double>::quiet_NaN()); }), "the loss of step");
      for (int64_t micro = 0; micro < 2; ++micro) {
        backward(*engine, step, micro);
        engine->step();
      }
    }
    ranks::same(engine->global_steps(), int64_t{3}, "steps at stage " + std::to_string(stage));
  }
}

Dict both_config(const Place& place, const Dict& params = {}, const Dict& more = {}) {
  Dict config = passes_config("BothPasses", params, place, more);
  config["plugins"] = Dict{{"path", gannet::List{Value(PASSES_PLUGIN)}}};
  return config;
}

// An optimizer with both: a second gradient that overflows at parameters that were moved puts them back.
RANK_BODY(second_overflows_while_perturbed) {
  auto world = gannet::test::world();
  for (const Place& place : kPlaces) {
    auto engine = engine_of(both_config(place, {}, dtype_of("fp16")));
    const at::Tensor masters = parameters_of(*engine);
    backward(*engine, 0);
    expect(engine->perturb().applied, "it moves");
    expect(difference(parameters_of(*engine), masters) > 0.1, "far");
    backward(*engine, 0, 0, 1e30);
    expect(!engine->keep_second_gradient().applied, "an overflow is not kept");
    backward(*engine, 0);
    expect(!engine->step().applied, "the step is skipped");
    expect(parameters_of(*engine).equal(masters), "the masters are back at " + text_of(place));
    expect_published(*engine, text_of(place));
  }
}

// Mistakes of a plugin's author in perturb(): an error reports them, and a checkpoint restores
// everything.
RANK_BODY(mistakes_in_perturb) {
  auto world = gannet::test::world();
  for (const Place& place : {Place{0, "none"}, Place{1, "cpu"}, Place{2, "nvme"}, Place{3, "none"}})
    for (const std::string mistake : {"error", "throw", "state"}) {
      const std::string folder = variable("FOLDER") + "/" + text_of(place) + mistake;
      const Dict watched{{"gannet", Dict{{"debug_plugins", mistake == "state"}}}};
      auto engine = engine_of(both_config(place, {{"mistake", mistake}}, watched));
      engine->save_checkpoint(folder);
      const at::Tensor before = parameters_of(*engine);
      const auto perturb = [&] {
        backward(*engine, 0);
        engine->perturb();
      };
      std::string said = message_of(perturb);
      if (said.empty()) {  // one piece is one call
        engine->abandon_step();
        said = message_of(perturb);
      }
      contains(said, mistake == "error"   ? "it gives up in the middle"
                     : mistake == "throw" ? "thrown by perturb"
                                          : "wrote to the state 'momentum'");
      contains(message_of([&] { backward(*engine, 0); }), "perturb() failed in step 1 while it changed them");
      engine->load_checkpoint(folder);
      expect(parameters_of(*engine).equal(before), "as saved at " + text_of(place));
      expect_published(*engine, text_of(place));
      perturb();
      engine->abandon_step();
      expect(parameters_of(*engine).equal(before), "and put back at " + text_of(place));
    }
}

class PassesHabits : public PassesTest {};

TEST_F(PassesHabits, AParameterFrozenBetweenThePassesIsPutBackInTheModelToo) { run("passes_freeze", 2); }
TEST_F(PassesHabits, ParametersJoinBeforeAStepAndBetweenItsPasses) { run("passes_join", 1); }
TEST_F(PassesHabits, ParametersJoinOnTwoRanks) { run("passes_join", 2); }
TEST_F(PassesHabits, TheLossAndTheCountsOfTheFirstPassStay) { run("passes_count", 2); }
TEST_F(PassesHabits, MicroBatchesOfAPassEndAlike) { run("passes_end_alike", 1); }
TEST_F(PassesHabits, APassResumesInItsMiddle) { run("passes_resume_within", 2); }
TEST_F(PassesHabits, WritesOtherEnginesAndBatchSizesBetweenThePasses) { run("passes_meanwhile", 1); }
TEST_F(PassesHabits, AnErrorWhileBucketsAreOnTheirWayIsOver) { run("error_while_buckets_fly", 2); }
TEST_F(PassesHabits, ASecondGradientThatOverflowsPutsPerturbedParametersBack) { run("second_overflows_while_perturbed", 2); }
TEST_F(PassesHabits, AMistakeInPerturbIsAnError) { run("mistakes_in_perturb", 1); }

}  // namespace
