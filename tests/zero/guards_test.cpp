// zero::GatheredParameters beside other calls of the engine: what would be lost between the two is refused, with the same
// sentence at every stage.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::zero::GatheredParameters;
using ranks::expect;
using ranks::run_ranks;

Dict with_average(int64_t stage) {
  Dict config = stage3(stage);
  config["gannet"] = Dict{{"ema", Dict{{"decay", 0.5}}}};
  return config;
}

void fill(const at::Tensor& parameter, double value) {
  const torch::NoGradGuard no_grad;
  parameter.fill_(value);
}

// The model has the average between eval() and train(): a write would go into it, or train() would put it in place of what was
// trained.
RANK_BODY(guards_and_averages) {
  for (const int64_t stage : {0, 1, 3}) {
    auto engine = gannet::initialize(make_net(1, 37), {.config = with_average(stage)}).engine;
    auto plain = gannet::initialize(make_net(1, 37), {.config = stage3(stage)}).engine;
    const auto weight = engine->module()->second->weight;
    train(*engine, 3);
    train(*plain, 3);
    engine->eval();
    contains(message_of([&] { GatheredParameters writes(*engine, {weight}, {.write_from = 0}); }),
             "zero::GatheredParameters with write_from was called after eval()");
    if (stage == 3) {
      GatheredParameters reads(*engine, {weight});
      contains(message_of([&] { engine->train(); }),
               "train() was called while a zero::GatheredParameters guard holds 'second.weight'");
    }
    engine->train();
    {
      GatheredParameters writes(*engine, {weight}, {.write_from = 0});
      contains(message_of([&] { engine->eval(); }),
               "eval() was called while a zero::GatheredParameters guard holds 'second.weight'");
    }
    expect(torch::equal(parameters_of(*engine), parameters_of(*plain)), "what was refused has changed nothing");
    engine->eval();
    engine->train();
    train(*engine, 1, 3);
    train(*plain, 1, 3);
    expect(torch::equal(parameters_of(*engine), parameters_of(*plain)), "and training goes on");
  }
}
TEST(Guards, ThatWriteAndAveragesInTheModelExcludeEachOther) { ranks::expect_all_succeed(run_ranks("guards_and_averages", 2)); }

RANK_BODY(guards_and_calls) {
  const std::string folder = variable("FOLDER");
  for (const int64_t stage : {0, 1, 3}) {
    auto engine = gannet::initialize(make_net(1, 37), {.config = stage3(stage)}).engine;
    const auto weight = engine->module()->second->weight;
    train(*engine, 1);
    engine->save_checkpoint(folder, {.tag = "stage" + std::to_string(stage)});
    const auto refused = [&](const std::string& call, const std::function<void()>& body) {
      contains(message_of(body), call + "() was called while a zero::GatheredParameters guard holds 'second.weight'");
    };
    const auto [x, y] = make_batch(0, 4);
    {
      GatheredParameters writes(*engine, {weight}, {.write_from = 0});
      if (engine->rank() == 0) fill(weight, 0.5);
      refused("load_checkpoint", [&] { engine->load_checkpoint(folder, {.tag = "stage" + std::to_string(stage)}); });
      refused("set_full_fp32_parameter", [&] { engine->set_full_fp32_parameter("second.weight", torch::zeros({4, 37})); });
      refused("save_checkpoint", [&] { engine->save_checkpoint(folder, {.tag = "within"}); });
      refused("save_fp32_model", [&] { engine->save_fp32_model(folder, "model.safetensors"); });
      refused("forward", [&] { engine->forward(x, y); });
      refused("step", [&] { engine->step(); });
    }
    expect(engine->full_fp32_parameter("second.weight").eq(0.5).all().item<bool>(), "the guard wrote what it had");
    if (stage == 3) {  // its values would be those from before the call
      GatheredParameters reads(*engine, {weight});
      refused("load_checkpoint", [&] { engine->load_checkpoint(folder, {.tag = "stage" + std::to_string(stage)}); });
      refused("set_full_fp32_parameter", [&] { engine->set_full_fp32_parameter("second.weight", torch::zeros({4, 37})); });
      engine->save_checkpoint(folder, {.tag = "within"});
    }
    train(*engine, 1, 1);
  }
}
TEST(Guards, ThatHoldValuesRefuseCallsThatChangeThem) {
  const std::string folder = ::testing::TempDir() + "guards_and_calls";
  std::filesystem::remove_all(folder);
  ranks::expect_all_succeed(run_ranks("guards_and_calls", 2, {.environment = {{"FOLDER", folder}}}));
}

// Without write_from nothing is published. Where parameters are whole the write is one of the program's own.
RANK_BODY(guards_that_read) {
  auto engine = gannet::initialize(make_net(1, 37), {.config = stage3()}).engine;
  const auto weight = engine->module()->second->weight;
  train(*engine, 1);
  const at::Tensor before = parameters_of(*engine);
  const std::string told = "parameter 'second.weight' was written under a zero::GatheredParameters guard without write_from";
  contains(message_of([&] {
             GatheredParameters reads(*engine, {weight});
             fill(weight, 0.5);
             reads.publish();
           }),
           told);
  expect(torch::equal(parameters_of(*engine), before), "the values from before stay");
  train(*engine, 1, 1);
  {
    GatheredParameters reads(*engine, {weight});
    fill(weight, 0.5);
  }  // a destructor can only log it
  const auto [x, y] = make_batch(0, 4);
  contains(message_of([&] { engine->forward(x, y); }), told);
  train(*engine, 1, 2);
  {
    GatheredParameters reads(*engine, {weight});
    {
      GatheredParameters writes(*engine, {weight}, {.write_from = 0});
      fill(weight, 0.25);
    }
    reads.publish();
  }
  expect(engine->full_fp32_parameter("second.weight").eq(0.25).all().item<bool>(), "a guard that writes within one that reads");
  train(*engine, 1, 3);
}
TEST(Guards, ThatReadTellOfWhatIsWrittenUnderThem) { ranks::expect_all_succeed(run_ranks("guards_that_read", 2)); }

// A helper that reads one of the parameters which a guard around it has to write.
RANK_BODY(reads_within_writes) {
  for (const int64_t stage : {0, 1, 3}) {
    auto engine = gannet::initialize(make_net(1, 37), {.config = stage3(stage)}).engine;
    const auto weight = engine->module()->second->weight;
    train(*engine, 1);
    {
      GatheredParameters writes(*engine, engine->module()->parameters(), {.write_from = 0});
      if (engine->rank() == 0) fill(weight, 0.5);
      {
        GatheredParameters reads(*engine, {weight});
        expect(engine->rank() != 0 || weight.eq(0.5).all().item<bool>(), "what this rank has written");
        engine->fp32_parameters();
      }
      if (engine->rank() == 0) fill(weight, 0.25);
    }
    expect(engine->full_fp32_parameter("second.weight").eq(0.25).all().item<bool>(), "what was written last");
    train(*engine, 2, 1);
  }
}
TEST(Guards, ThatReadWithinOneThatWritesLeaveWhatIsWritten) { ranks::expect_all_succeed(run_ranks("reads_within_writes", 2)); }

// set_data and torch::load, only on the rank that writes; for trained and for frozen parameters.
// The result is as if each rank had done it: an engine on which all ranks did has the same
// parameters afterwards.
RANK_BODY(new_memory_of_the_writer) {
  const std::string file = variable("FOLDER") + "/module.pt";
  auto saved = make_net(7, 37);
  if (variable("RANK") == "0") torch::save(saved, file);
  world();
  for (const int64_t stage : {0, 1, 2, 3})
    for (const char* dtype : {"fp32", "bf16"})
      for (const bool is_frozen : {false, true}) {
        const std::string what = "stage " + std::to_string(stage) + " in " + dtype + (is_frozen ? ", frozen" : "");
        std::vector<at::Tensor> ends;
        for (const bool on_all : {false, true}) {
          auto model = make_net(1, 37);
          if (is_frozen) model->first->weight.requires_grad_(false);
          auto engine = gannet::initialize(model, {.config = stage3(stage, {}, dtype)}).engine;
          train(*engine, 1);
          const bool writes = on_all || engine->rank() == 1;
          for (int64_t step = 1; step < 3; ++step) {
            {
              GatheredParameters guard(*engine, {model->first->weight, model->second->bias}, {.write_from = 1});
              const torch::NoGradGuard no_grad;
              if (writes) model->first->weight.set_data(model->first->weight.detach() * 0.5);
              if (writes) model->second->bias.mul_(0.5);
            }
            train(*engine, 1, step);
          }
          {
            GatheredParameters guard(*engine, model->parameters(), {.write_from = 1});
            if (writes) torch::load(model, file);
          }
          train(*engine, 1, 3);
          GatheredParameters reads(*engine, model->parameters());
          ends.push_back(flat_parameters(*model));
          // Further than that file no parameter has come in one step.
          expect((model->first->weight.detach().to(at::kFloat) - saved->first->weight).abs().max().item<float>() < 6e-3,
                 what + ": the file's values");
        }
        expect(torch::equal(ends[0], ends[1]), what + ": one rank alone wrote");
      }
}
TEST(Guards, TakeNewMemoryOfTheRankThatWritesAlone) {
  const std::string folder = ::testing::TempDir() + "new_memory_of_the_writer";
  std::filesystem::create_directories(folder);
  ranks::expect_all_succeed(run_ranks("new_memory_of_the_writer", 2, {.environment = {{"FOLDER", folder}}}));
}

// A teacher within the module follows by guards at stage 3, as by copy_ elsewhere.
RANK_BODY(frozen_under_guards) {
  std::vector<at::Tensor> ends;
  for (const int64_t stage : {0, 1, 3}) {
    auto model = make_net(1, 37);
    model->first->weight.requires_grad_(false);
    auto engine = gannet::initialize(model, {.config = stage3(stage)}).engine;
    for (int64_t step = 0; step < 4; ++step) {
      train(*engine, 1, step);
      GatheredParameters writes(*engine, {model->first->weight}, {.write_from = 0});
      const torch::NoGradGuard no_grad;
      if (engine->rank() == 0) model->first->weight.mul_(0.9);
      writes.publish();
    }
    train(*engine, 1, 4);
    GatheredParameters reads(*engine, model->parameters());
    ends.push_back(flat_parameters(*model));
  }
  expect(torch::allclose(ends[0], ends[1], 1e-5, 1e-6) && torch::allclose(ends[0], ends[2], 1e-5, 1e-6),
         "the same at every stage");
  const auto plain = make_net(1, 37);
  expect((ends[0].narrow(0, 0, 37 * 8) - plain->first->weight.detach().to(at::kDouble).flatten() * std::pow(0.9, 4))
                 .abs()
                 .max()
                 .item<double>() < 1e-6,
         "it was scaled in each step");
}
TEST(Guards, WriteFrozenParametersAtEveryStage) { ranks::expect_all_succeed(run_ranks("frozen_under_guards", 2)); }

// A single rank also counts them.
RANK_BODY(guards_on_one_rank) {
  auto engine = gannet::initialize(make_net(1, 37), {.config = stage3(0)}).engine;
  contains(message_of([&] { GatheredParameters writes(*engine, {engine->module()->first->weight}, {.write_from = 9}); }),
           "write_from is rank 9, and there are 1");
}
TEST(Guards, OnOneRankKnowNoOther) { ranks::expect_all_succeed(run_ranks("guards_on_one_rank", 1)); }

// A frozen parameter that only one rank wrote: named at the next fingerprint, and at a save.
RANK_BODY(frozen_and_written) {
  const bool at_a_save = variable("AT") == "save", on_one = variable("ON") == "one";
  Dict config = stage3(1);
  config["gannet"] = Dict{{"fingerprint_every", at_a_save ? 100 : 1}};
  auto model = make_net(1, 37);
  model->first->weight.requires_grad_(false);
  auto engine = gannet::initialize(model, {.config = config}).engine;
  train(*engine, 2);
  if (!on_one || engine->rank() == 1) fill(model->first->weight, 0.5);
  const std::string found = message_of([&] {
    if (at_a_save) engine->save_checkpoint(variable("FOLDER"));
    train(*engine, 1, 2);
    train(*engine, 1, 3);
  });
  if (on_one)
    contains(found, "the ranks have different values of 'the frozen parameter first.weight': rank 1 and rank 0");
  else
    ranks::same(found, std::string(), "all ranks wrote the same");
}
TEST(Guards, AFrozenParameterThatOneRankWroteIsNamed) {
  const std::string folder = ::testing::TempDir() + "frozen_and_written";
  for (const char* at : {"save", "step"})
    for (const char* on : {"one", "all"}) {
      std::filesystem::remove_all(folder);
      ranks::expect_all_succeed(
          run_ranks("frozen_and_written", 2, {.environment = {{"FOLDER", folder}, {"AT", at}, {"ON", on}}}));
    }
}

}  // namespace
