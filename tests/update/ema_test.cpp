// "gannet": {"ema": ...}: the moving average of the parameters against the same by hand, at every stage and on every tier; in the
// model between eval() and train(), saved, resumed, exported.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "checkpoint/export.h"
#include "engine/impl.h"
#include "update/average.h"
#include "zero/passes.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::EngineBase;
using ranks::expect;
using testing::HasSubstr;

using Named = std::map<std::string, at::Tensor>;

Dict ema(double decay = 0.9, const Dict& more = {}) {
  Dict block{{"decay", decay}};
  for (const auto& [key, value] : more.entries()) block[key] = value;
  return {{"ema", block}};
}

Dict ema_config(const Place& place, const std::string& dtype, const Dict& own = ema()) {
  Dict more = dtype_of(dtype);
  more["gannet"] = own;
  return passes_config("AdamW", {{"lr", 0.01}, {"weight_decay", 0.1}}, place, more);
}

Named masters_of(EngineBase& engine) {
  Named all;
  for (const auto& [name, master] : engine.fp32_parameters()) all[name] = master.clone();
  return all;
}

void move(Named& average, const Named& masters, double decay) {
  for (auto& [name, values] : average) values.add_((masters.at(name) - values).mul_(1 - decay));
}

void expect_same(const Named& found, const Named& expected, const std::string& where) {
  ranks::same(found.size(), expected.size(), where + ": tensors");
  for (const auto& [name, values] : expected)
    expect(found.at(name).equal(values),
           where + ", " + name + ": off by " + std::to_string((found.at(name) - values).abs().max().item<double>()));
}

// The model between eval() and train(); train() leaves no trace.
template <class Engine>
Named average_of(Engine& engine, const std::string& where) {
  const Named before = masters_of(engine);
  engine.eval();
  const Named average = masters_of(engine);
  expect_published(engine, where + ", eval()");
  engine.train();
  expect_same(masters_of(engine), before, where + ": train() puts back what was trained");
  expect_published(engine, where + ", train()");
  return average;
}

// 50 steps, evaluated within; the same masters as without an average.
RANK_BODY(ema_by_hand) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  const std::string dtype = variable("DTYPE");
  for (const Place& place : kPlaces) {
    const std::string where = dtype + ", " + text_of(place);
    auto engine = engine_of(ema_config(place, dtype));
    auto plain = engine_of(ema_config(place, dtype, {}));
    Named by_hand = masters_of(*engine);
    for (int64_t step = 0; step < 50; ++step) {
      for (auto* each : {engine.get(), plain.get()}) {
        backward(*each, step);
        expect(each->step().applied, "a step is taken");
      }
      move(by_hand, masters_of(*engine), 0.9);
      if (step == 20) expect_same(average_of(*engine, where), by_hand, where + ", step 21");
    }
    expect_same(average_of(*engine, where), by_hand, where + ", step 50");
    expect_same(masters_of(*engine), masters_of(*plain), where + ": what is trained");
    for (const gannet::Range& range : engine->impl().store.ranges()) {
      expect(range.average.numel() == range.shard_numel, "cut as the masters are");
      expect(range.average.is_here() == (place.states != "nvme"), "where they lie");
    }
  }
}

// The averages after n updates follow from the options, also for parameters that join, do not
// change or are not applied.
RANK_BODY(ema_rules) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  for (const Place& place : {Place{0, "none"}, Place{2, "nvme"}, Place{3, "none"}}) {
    const std::string where = text_of(place);
    const Dict own = ema(0.5, {{"warmup", true}, {"update_after_step", 2}});
    auto model = make_uneven();
    for (auto& parameter : model->first->parameters()) parameter.requires_grad_(false);
    auto engine = gannet::initialize(model, {.config = ema_config(place, "fp32", own)}).engine;
    Named by_hand = masters_of(*engine);
    for (int64_t step = 0; step < 9; ++step) {
      if (step == 4)
        for (auto& parameter : model->first->parameters()) parameter.requires_grad_(true);
      model->last->bias.requires_grad_(step != 3 && step != 6);
      backward(*engine, step);
      if (step == 4) {  // what joins begins as a copy, and moves from its first update on
        for (const auto& name : {"first.weight", "first.bias"})
          by_hand[name] = make_uneven()->named_parameters()[name].detach().clone();
      }
      engine->step();
      const double n = static_cast<double>(step + 1 - 2);
      move(by_hand, masters_of(*engine), n <= 0 ? 0 : std::min(0.5, (1 + n) / (10 + n)));
      if (step < 2)
        for (auto& [name, values] : by_hand) values = masters_of(*engine).at(name);  // a copy, not a sum of differences
    }
    expect_same(average_of(*engine, where), by_hand, where);
  }
  // Weights that the program loads before the first update are where it begins.
  for (const bool evaluates : {false, true}) {
    auto engine = engine_of(ema_config({3, "none"}, "fp32"));
    for (const auto& [name, values] : masters_of(*engine)) engine->set_full_fp32_parameter(name, at::full_like(values, 0.25));
    Named by_hand = masters_of(*engine);
    if (evaluates) expect_same(average_of(*engine, "loaded"), by_hand, "loaded, before the first update");
    for (int64_t step = 0; step < 3; ++step) {
      backward(*engine, step);
      engine->step();
      move(by_hand, masters_of(*engine), 0.9);
    }
    expect_same(average_of(*engine, "loaded"), by_hand, "loaded");
  }
  auto engine = engine_of(ema_config({1, "none"}, "fp16"));
  backward(*engine, 0);
  engine->step();
  const Named before = average_of(*engine, "fp16");
  backward(*engine, 1, 0, INFINITY);
  expect(!engine->step().applied, "an overflow is skipped");
  expect_same(average_of(*engine, "fp16"), before, "a skipped step does not move it");
}

struct Own : torch::optim::SGD {  // the engine does not know its rule
  using SGD::SGD;
};

RANK_BODY(ema_of_own_optimizers) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  for (const std::string dtype : {"fp32", "bf16"})
    for (const bool is_known : {true, false}) {
      Dict config = ema_config({0, "none"}, dtype);
      config.erase("optimizer");
      auto model = make_uneven();
      std::shared_ptr<torch::optim::Optimizer> optimizer =
          is_known ? std::shared_ptr<torch::optim::Optimizer>(std::make_shared<torch::optim::AdamW>(model->parameters()))
                   : std::make_shared<Own>(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      auto engine = gannet::initialize(model, {.config = config, .optimizer = optimizer}).engine;
      Named by_hand = masters_of(*engine);
      for (int64_t step = 0; step < 6; ++step) {
        backward(*engine, step);
        engine->step();
        move(by_hand, masters_of(*engine), 0.9);
        if (step == 3) average_of(*engine, dtype);
      }
      expect_same(average_of(*engine, dtype), by_hand, dtype + (is_known ? ", torch::optim::AdamW" : ", a class of its own"));
    }
  auto model = make_uneven();
  model->to(torch::kDouble);
  auto engine = gannet::initialize(model, {.config = ema_config({1, "none"}, "fp32")}).engine;
  Named by_hand = masters_of(*engine);
  for (int64_t step = 0; step < 6; ++step) {
    backward(*engine, step);
    engine->step();
    move(by_hand, masters_of(*engine), 0.9);
  }
  expect(by_hand.begin()->second.scalar_type() == torch::kDouble, "masters of fp64");
  expect_same(average_of(*engine, "fp64"), by_hand, "fp64");
}

std::string saved_folder(const Place& place) { return variable("FOLDER") + "/" + std::to_string(place.stage) + place.states; }

// Five steps and a save, then three more, which a resume repeats.
RANK_BODY(ema_saves) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  for (const Place& place : kPlaces) {
    auto engine = engine_of(ema_config(place, "bf16"));
    for (int64_t step = 0; step < 5; ++step) backward(*engine, step), engine->step();
    engine->save_checkpoint(saved_folder(place));
    for (int64_t step = 5; step < 8; ++step) backward(*engine, step), engine->step();
    auto resumed = engine_of(ema_config(place, "bf16"));
    const auto receipt = resumed->load_checkpoint(saved_folder(place));
    expect(receipt.to_string().find("average") == std::string::npos, receipt.to_string());
    for (int64_t step = 5; step < 8; ++step) backward(*resumed, step), resumed->step();
    expect_same(average_of(*resumed, text_of(place)), average_of(*engine, text_of(place)), text_of(place) + ", resumed");
    const std::string told = message_of([&] {
      engine->eval();
      engine->save_checkpoint(saved_folder(place));
    });
    contains(told,
             "save_checkpoint() was called after eval(): the model has the weights that an engine with gannet.ema evaluates "
             "with");
  }
}

// At another number of ranks, from each place to another one, in another precision.
RANK_BODY(ema_resumes) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  for (size_t i = 0; i < kPlaces.size(); ++i) {
    const Place &from = kPlaces[i], &to = kPlaces[(i + 3) % kPlaces.size()];
    const std::string where = text_of(from) + " to " + text_of(to);
    const auto found = gannet::checkpoint::open(saved_folder(from), {});
    Named expected;
    for (const auto& tensor : gannet::checkpoint::averages_of(found)) {
      at::Tensor values = at::empty(tensor.info.shape, tensor.info.dtype);
      found.read({{tensor.info.name, 0, values.view({-1})}});
      expected[tensor.name] = values;
    }
    auto engine = engine_of(ema_config(to, i % 2 ? "bf16" : "fp32"));
    engine->load_checkpoint(saved_folder(from));
    expect_same(average_of(*engine, where), expected, where);
    expect(!masters_of(*engine).begin()->second.equal(expected.begin()->second), "the average is another one than the masters");
  }
}

RANK_BODY(ema_receipts) {
  auto world = gannet::test::world();
  const Place place{3, "none"};
  const auto trained = [&](const Dict& own, const std::string& folder) {
    auto engine = engine_of(ema_config(place, "fp32", own));
    for (int64_t step = 0; step < 3; ++step) backward(*engine, step), engine->step();
    engine->save_checkpoint(folder);
    return masters_of(*engine);
  };
  const std::string with = variable("FOLDER") + "/with", without = variable("FOLDER") + "/without";
  trained(ema(), with);
  const Named masters = trained({}, without);
  auto engine = engine_of(ema_config(place, "fp32"));
  contains(engine->load_checkpoint(without).to_string(),
           "the checkpoint has no moving average (gannet.ema): it starts from the loaded parameters");
  expect_same(average_of(*engine, "started"), masters, "it starts from the loaded parameters");
  contains(engine->load_checkpoint(with, {.load_module_only = true}).to_string(),
           "the moving average (gannet.ema) starts from the loaded parameters");
  expect_same(average_of(*engine, "started"), masters, "of weights alone, too");
  auto plain = engine_of(ema_config(place, "fp32", {}));
  contains(plain->load_checkpoint(with).to_string(),
           "the checkpoint has a moving average of the parameters, which this engine does not keep (gannet.ema)");
}

class Ema : public PassesTest {
 protected:
  void by_hand(const std::string& dtype, int ranks) {
    ranks::expect_all_succeed(
        ranks::run_ranks("ema_by_hand", ranks, {.environment = {{"FOLDER", folder_.string()}, {"DTYPE", dtype}}}));
  }
};

TEST_F(Ema, IsTheAverageByHandInFp32OnOneRank) { by_hand("fp32", 1); }
TEST_F(Ema, IsTheAverageByHandInFp32OnTwoRanks) { by_hand("fp32", 2); }
TEST_F(Ema, IsTheAverageByHandInBf16OnOneRank) { by_hand("bf16", 1); }
TEST_F(Ema, IsTheAverageByHandInBf16OnTwoRanks) { by_hand("bf16", 2); }
TEST_F(Ema, FollowsItsOptionsAndWhatJoinsStandsStillOrIsSkipped) { run("ema_rules", 2); }
TEST_F(Ema, ServesTheProgramsOwnOptimizersAndFp64) { run("ema_of_own_optimizers", 1); }
TEST_F(Ema, ResumesToTheBitAtAnyNumberOfRanksStageAndTier) {
  run("ema_saves", 2);
  run("ema_resumes", 1);
}
TEST_F(Ema, ReceiptsSayWhereItStarts) { run("ema_receipts", 2); }

TEST_F(Ema, OptimizersWithWeightsOfTheirOwnToEvaluateWithAreRefused) {
  Dict config = ema_config({0, "none"}, "fp32");
  config["optimizer"] = Dict{{"type", "AdamWScheduleFree"}, {"params", Dict{}}};
  const std::string what =
      "gannet.ema keeps a moving average of the parameters to evaluate with, and optimizer 'AdamWScheduleFree' has weights of "
      "its "
      "own for that";
  EXPECT_THAT(message_of([&] { engine_of(config); }), HasSubstr(what));
  auto engine = engine_of(ema_config({0, "none"}, "fp32"));
  EXPECT_THAT(message_of([&] { engine->swap_optimizer("AdamWScheduleFree", Dict{}); }), HasSubstr(what));
}

TEST_F(Ema, IsExportedInPlaceOfTheParameters) {
  auto engine = engine_of(ema_config({0, "none"}, "bf16"));
  for (int64_t step = 0; step < 3; ++step) backward(*engine, step), engine->step();
  const std::string folder = folder_.string() + "/run";
  engine->save_checkpoint(folder);
  const Named average = average_of(*engine, "exported");
  const auto found = gannet::checkpoint::open(folder, {});
  gannet::checkpoint::export_file(gannet::checkpoint::export_source(found, true), folder + "/ema.safetensors", {});
  for (const auto& [name, values] : gannet::load_safetensors(folder + "/ema.safetensors"))
    EXPECT_TRUE(values.equal(average.at(name))) << name;
  engine->eval();
  engine->save_16bit_model(folder, "model.safetensors");
  engine->train();
  for (const auto& [name, values] : gannet::load_safetensors(folder + "/model.safetensors"))
    EXPECT_TRUE(values.equal(average.at(name).to(torch::kBFloat16))) << name;
  auto plain = engine_of(ema_config({0, "none"}, "bf16", {}));
  plain->save_checkpoint(folder + "2");
  const auto none = gannet::checkpoint::open(folder + "2", {});
  EXPECT_THAT(message_of([&] { gannet::checkpoint::export_source(none, true); }),
              HasSubstr("has no moving average of the parameters"));
}

TEST(EmaRule, WarmsUpAndBeginsLate) {
  const gannet::Average::Rule plain{.decay = 0.999}, warm{.decay = 0.5, .warmup = true, .update_after_step = 10};
  EXPECT_EQ(plain.decay_of(1), 0.999);
  EXPECT_EQ(warm.decay_of(10), 0);
  EXPECT_EQ(warm.decay_of(11), 2.0 / 11);
  EXPECT_EQ(warm.decay_of(1000), 0.5);
}

}  // namespace
