// ZeroOneAdam beside what programs do while ranks have different parameters: reading and writing them, groups, swaps of the
// optimizer, a bit that flips, and what is refused.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include "plugin/support.h"
#include "zero/zero_one_support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::List;
using ranks::expect;
using ranks::run_ranks;

// Parameters that the program reads after a local step are the same on all ranks; train() restores
// each rank's own.
RANK_BODY(zero_one_weights_to_use) {
  auto world = gannet::test::world();
  for (const bool bf16 : {false, true}) {
    const std::string folder = variable("FOLDER") + (bf16 ? "/weights-bf16" : "/weights-fp32") + std::to_string(world->size());
    auto engine = gannet::initialize(make_uneven(), {.config = zero_one_config(bf16)}).engine;
    train_accumulated(*engine, 28);
    expect(!engine->parameters_differ(), "28 averages");
    const at::Tensor common = own_masters(*engine);
    train_accumulated(*engine, 3);
    expect(engine->parameters_differ(), "31 is local");
    const at::Tensor own = own_masters(*engine);
    expect(!is_same_on_all(*engine, own), "each rank has its own");
    expect(torch::equal(parameters_of(*engine), common), "fp32_parameters gives the common ones");
    const std::string name = engine->parameter_names()[0];
    expect(
        torch::equal(engine->full_fp32_parameter(name).flatten(), common.narrow(0, 0, engine->full_fp32_parameter(name).numel())),
        "full_fp32_parameter too");
    contains(message_of([&] { engine->full_optimizer_state(name, "exp_avg"); }), "state 'exp_avg' is other on every rank");
    engine->save_16bit_model(folder, "model.safetensors");
    engine->save_fp32_model(folder, "masters.safetensors");
    engine->eval();
    expect(torch::equal(own_masters(*engine), common), "eval() puts them into the masters");
    const at::Tensor used = torch::cat([&] {
      std::vector<at::Tensor> all;
      for (const auto& parameter : engine->module()->parameters()) all.push_back(parameter.detach().flatten().clone());
      return all;
    }());
    expect(torch::equal(used, common.to(used.scalar_type())), "and into the model");
    contains(message_of([&] { engine->save_checkpoint(folder); }), "call engine->train() first");
    const at::Tensor in_eval = parameters_of(*engine);
    expect(torch::equal(in_eval, common), "fp32_parameters in eval()");
    engine->train();
    expect(torch::equal(own_masters(*engine), own), "train() brings this rank's own back");
    auto loaded = make_uneven();
    gannet::load_weights(*loaded, folder + "/masters.safetensors");
    size_t at = 0;
    for (const auto& parameter : loaded->parameters()) {
      const int64_t numel = parameter.numel();
      expect(torch::equal(parameter.detach().flatten(), common.narrow(0, static_cast<int64_t>(at), numel)),
             "the file of masters");
      at += static_cast<size_t>(numel);
    }
    gannet::load_weights(*loaded, folder + "/model.safetensors");
    at = 0;
    for (const auto& parameter : loaded->parameters()) {
      const int64_t numel = parameter.numel();
      expect(torch::equal(parameter.detach().flatten(),
                          common.narrow(0, static_cast<int64_t>(at), numel).to(used.scalar_type()).to(torch::kFloat)),
             "the file of weights");
      at += static_cast<size_t>(numel);
    }
    train_accumulated(*engine, 1);
    expect(is_same_on_all(*engine, own_masters(*engine)), "32 averages");
    engine->eval();  // nothing to exchange
    expect(message_of([&] { engine->save_checkpoint(folder); }).empty(), "so that a save is legal");
    engine->train();
  }
}

// Groups with plans of their own, one of which never moves; the masters' hashes are compared where they must be equal.
RANK_BODY(zero_one_groups) {
  auto world = gannet::test::world();
  Dict config = zero_one_config();
  Dict optimizer = config["optimizer"].as_dict();
  optimizer["param_groups"] = List{Dict{{"match", "first.*"}, {"lr", 0.0}}, Dict{{"match", "last.*"}, {"local_step_clipper", 1}}};
  config["optimizer"] = optimizer;
  config["gannet"] = Dict{{"fingerprint_every", 1}};
  auto engine = gannet::initialize(make_uneven(), {.config = config}).engine;
  const at::Tensor frozen = engine->full_fp32_parameter("first.weight").clone();
  train_accumulated(*engine, 31);
  const auto is_same = [&](const std::string& name) {
    return is_same_on_all(*engine, engine->local_fp32_parameter(name).values.flatten().clone());
  };
  expect(torch::equal(engine->full_fp32_parameter("first.weight"), frozen), "at a rate of 0 nothing moves");
  expect(is_same("last.weight") && is_same("last.bias"), "a group whose every step averages");
  expect(!is_same("middle.weight"), "beside one that takes local steps");
  train_accumulated(*engine, 1);
  expect(is_same_on_all(*engine, own_masters(*engine)), "32 averages all");
  expect(own_masters(*engine).isfinite().all().item<bool>(), "finite");
  expect(torch::equal(engine->full_optimizer_state("first.weight", "exp_avg"), torch::zeros_like(frozen)),
         "the momentum of what did not move begins again");
}

// A bit that flips on one rank while parameters differ is found when they are to be equal again.
RANK_BODY(zero_one_bit) {
  auto world = gannet::test::world();
  Dict config = zero_one_config();
  config["gannet"] = Dict{{"fingerprint_every", 1}};
  auto engine = gannet::initialize(make_uneven(), {.config = config}).engine;
  train_accumulated(*engine, 28);
  if (world->rank() == 1)
    static_cast<uint32_t*>(const_cast<void*>(engine->module()->middle->weight.const_data_ptr()))[5] ^= 1 << 20;
  train_accumulated(*engine, 3);
  contains(message_of([&] { train_accumulated(*engine, 1); }), "different values of 'middle.weight'");
}

RANK_BODY(zero_one_refusals) {
  auto world = gannet::test::world();
  const auto made_with = [&](const Dict& config) {
    return message_of([&] { gannet::initialize(make_net(), {.config = config}); });
  };
  Dict config = zero_one_config();
  for (const int64_t stage : {1, 2, 3}) {
    config["zero_optimization"] = Dict{{"stage", stage}};
    contains(made_with(config), "optimizer 'ZeroOneAdam' averages gradients itself, and ZeRO stage " + std::to_string(stage));
  }
  contains(made_with(zero_one_config(false, Dict{{"amsgrad", true}})), "the 1-bit optimizers have no AMSGrad variant");
  contains(made_with(zero_one_config(false, Dict{{"max_grad_norm", 1.0}})), "write gradient_clipping at the top level");
  for (const char* name : {"var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper"})
    contains(made_with(zero_one_config(false, Dict{{name, 0}})), name);
  contains(made_with(zero_one_config(false, Dict{{"freeze_step", 5}})), "has no parameter 'freeze_step'");

  auto engine = gannet::initialize(make_net(), {.config = zero_one_config()}).engine;
  train_accumulated(*engine, 31);
  const std::string after = "after a local step of optimizer 'ZeroOneAdam'";
  const at::Tensor ones = torch::ones({16});
  contains(message_of([&] { engine->set_full_fp32_parameter("first.bias", ones); }), after);
  contains(message_of([&] { engine->swap_optimizer("AdamW", Dict{{"lr", 1e-3}}); }), after);
  contains(
      message_of([&] { gannet::zero::GatheredParameters guard(*engine, {engine->module()->first->bias}, {.write_from = 0}); }),
      after);
  train_accumulated(*engine, 1);
  engine->set_full_fp32_parameter("first.bias", ones);
  expect(torch::equal(engine->full_fp32_parameter("first.bias"), ones), "where all have the same it is written");
  train_accumulated(*engine, 1);
  {
    const torch::NoGradGuard no_grad;
    engine->module()->first->bias.fill_(1);
  }
  contains(message_of([&] { train_accumulated(*engine, 1); }), "parameter 'first.bias' was written in the module " + after);
  contains(message_of([&] { train_accumulated(*engine, 1); }), "parameter values are undefined");

  auto swapped = gannet::initialize(make_net(), {.config = zero_one_config()}).engine;
  train_accumulated(*swapped, 28);
  swapped->swap_optimizer("OneBitAdam", Dict{{"lr", 1e-3}, {"freeze_step", 1}});
  train_accumulated(*swapped, 2);
  swapped->swap_optimizer("ZeroOneAdam", Dict{{"lr", 1e-3}, {"var_freeze_step", 2}, {"local_step_scaler", 1}});
  train_accumulated(*swapped, 8);
  expect(parameters_of(*swapped).isfinite().all().item<bool>(), "there and back");
}

// A rule that leaves the average of gradients to the engine while parameters differ: there is none.
RANK_BODY(local_steps_then_the_engines_average) {
  auto world = gannet::test::world();
  Dict config = config_of();
  config["optimizer"] = Dict{{"type", "LocalThenHost"}, {"params", Dict{{"lr", 0.01}}}};
  config["plugins"] = Dict{{"path", List{gannet::Value(BAD_REDUCTIONS_PLUGIN)}}};
  auto engine = gannet::initialize(make_net(), {.config = config}).engine;
  train_accumulated(*engine, 3);
  expect(engine->parameters_differ(), "1 to 3 are local");
  const std::string message = message_of([&] { train_accumulated(*engine, 1); });
  contains(message, "optimizer 'LocalThenHost' leaves it to the engine to average the gradients of update 4, after a local step");
}

class ZeroOneHabits : public testing::Test {
 protected:
  void run(const std::string& body, int ranks) {
    const auto outcomes = run_ranks(body, ranks, {.environment = {{"FOLDER", folder_.string()}}});
    ranks::expect_all_succeed(outcomes);
    std::printf("%s", outcomes[0].output.c_str());
  }
  const TemporaryFolder folder_;
};

TEST_F(ZeroOneHabits, GivesTheCommonWeightsWhereRanksDiffer) { run("zero_one_weights_to_use", 2); }
TEST_F(ZeroOneHabits, TakesGroupsWithPlansOfTheirOwn) { run("zero_one_groups", 2); }
TEST_F(ZeroOneHabits, FindsAFlippedBitAtTheNextAverage) { run("zero_one_bit", 2); }
TEST_F(ZeroOneHabits, RefusesWhatItCannotDo) { run("zero_one_refusals", 2); }
TEST_F(ZeroOneHabits, NeedAnAverageOfTheRuleAfterLocalSteps) { run("local_steps_then_the_engines_average", 2); }

}  // namespace
