// Every optimizer of ours under what programs do beside plain training: odd shapes, frozen layers, a learning rate of 0,
// gradients of zeros, skipped steps, groups, several engines, fp64 and 16 bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/models.h"

namespace gannet::test {
namespace {

struct Type {
  std::string name;
  Dict params;
};
std::vector<Type> types() {
  return {{"Adam", Dict{{"lr", 1e-2}}},
          {"AdamW", Dict{{"lr", 1e-2}}},
          {"SGD", Dict{{"lr", 0.05}, {"momentum", 0.9}}},
          {"SAM", Dict{{"lr", 0.05}, {"momentum", 0.9}}},
          {"Lion", Dict{{"lr", 1e-3}}},
          {"Adagrad", Dict{{"lr", 0.01}}},
          {"RMSprop", Dict{{"lr", 1e-3}, {"momentum", 0.9}, {"centered", true}}},
          {"NAdam", Dict{{"lr", 1e-3}}},
          {"Lamb", Dict{{"lr", 0.01}}},
          {"Muon", Dict{{"lr", 0.01}, {"adam_lr", 1e-3}}},
          {"Adafactor", Dict{{"lr", 0.01}, {"beta1", 0.9}}},
          {"AdamW8bit", Dict{{"lr", 1e-3}}},
          {"AdamWScheduleFree", Dict{{"lr", 1e-2}}},
          {"OneBitAdam", Dict{{"lr", 1e-3}, {"freeze_step", 2}}},
          {"OneBitLamb", Dict{{"lr", 1e-3}, {"freeze_step", 2}}},
          {"ZeroOneAdam", Dict{{"lr", 1e-3}, {"var_freeze_step", 2}}}};
}
bool reduces_gradients(const Type& type) { return type.name.find("One") != std::string::npos; }

// Tensors of every odd shape, whose loss pulls each element to 1; `strength` 0 gives gradients of zeros.
struct OddImpl : torch::nn::Module {
  OddImpl() {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{9});
    const std::vector<std::vector<int64_t>> shapes = {{5, 3}, {7}, {}, {1}, {0}, {0, 4}, {2, 3, 2, 2}, {300}, {1, 1}, {3, 4}};
    for (size_t i = 0; i < shapes.size(); ++i)
      all.push_back(register_parameter("p" + std::to_string(i), torch::randn(shapes[i], generator), /*requires_grad=*/i != 9));
  }
  at::Tensor forward(double strength) {
    at::Tensor loss = torch::zeros({});
    for (auto& p : all) loss = loss + (p.to(at::kFloat) - 1).square().sum() * strength;
    return loss;
  }
  std::vector<at::Tensor> all;
};

Dict config_of(const Type& type, const Dict& params = {}, const Dict& more = {}) {
  Dict all = type.params;
  for (const auto& [key, value] : params.entries()) all[key] = value;
  Dict config{{"train_micro_batch_size_per_gpu", 1},
              {"accelerator", Dict{{"type", "cpu"}}},
              {"optimizer", Dict{{"type", type.name}, {"params", all}}}};
  for (const auto& [key, value] : more.entries()) config[key] = value;
  return config;
}
Dict stage(int64_t number) { return Dict{{"zero_optimization", Dict{{"stage", number}}}}; }

struct Training {
  explicit Training(const Dict& config, at::ScalarType dtype = at::kFloat) : module(std::make_shared<OddImpl>()) {
    if (dtype != at::kFloat) module->to(dtype);
    engine = initialize(module, {.config = config}).engine;
  }
  StepResult step(double strength = 0.1) {
    engine->backward(engine->forward(strength));
    return engine->step();
  }
  std::vector<at::Tensor> masters() {
    std::vector<at::Tensor> all;
    for (const auto& name : engine->parameter_names()) all.push_back(engine->full_fp32_parameter(name).clone());
    return all;
  }
  std::shared_ptr<OddImpl> module;
  std::shared_ptr<Engine<OddImpl>> engine;
};

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << what << ", parameter " << i;
}

TEST(Habits, TensorsOfEveryShapeTrainAndFrozenOnesStay) {
  for (const auto& type : types()) {
    std::vector<at::Tensor> at_stage_0;
    for (const int64_t number : {0, 1, 2, 3}) {
      if (number > 0 && reduces_gradients(type)) continue;
      SCOPED_TRACE(type.name + " at stage " + std::to_string(number));
      Training run(config_of(type, {}, stage(number)));
      const auto before = run.masters();
      const at::Tensor frozen = OddImpl().all[9].detach();
      for (int s = 0; s < 6; ++s) EXPECT_TRUE(run.step().applied);
      const auto after = run.masters();
      for (size_t i = 0; i < after.size(); ++i) {
        EXPECT_TRUE(after[i].isfinite().all().item<bool>()) << i;
        if (after[i].numel() > 0) EXPECT_FALSE(torch::equal(after[i], before[i])) << i;
      }
      if (number < 3) EXPECT_TRUE(torch::equal(run.module->all[9], frozen));
      if (number == 0) at_stage_0 = after;
      for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(torch::allclose(after[i], at_stage_0[i], 1e-5, 1e-6)) << i;
    }
  }
}

TEST(Habits, ALearningRateOf0LeavesEveryBit) {
  for (const auto& type : types()) {
    Dict params{{"lr", 0.0}};
    if (type.name != "Adagrad") params["weight_decay"] = 0.1;
    // Muon refuses an lr of 0 beside an adam_lr, which follows it in proportion.
    Training run(config_of(type.name == "Muon" ? Type{type.name, {}} : type, params));
    const auto before = run.masters();
    for (int s = 0; s < 5; ++s) run.step();
    expect_same(run.masters(), before, type.name);
  }
}

TEST(Habits, GradientsOfZerosLeaveEveryBitWithoutDecay) {
  for (const auto& type : types()) {
    Training run(config_of(type, Dict{{"weight_decay", 0.0}}));
    const auto before = run.masters();
    for (int s = 0; s < 5; ++s) run.step(0);
    expect_same(run.masters(), before, type.name);
  }
}

TEST(Habits, AGroupWithoutDecayDecaysNothing) {
  for (const auto& type : types()) {
    Dict config = config_of(type, Dict{{"weight_decay", 0.5}});
    Dict optimizer = config["optimizer"].as_dict();
    optimizer["param_groups"] = List{Dict{{"match", List{"p1", "p2", "p3"}}, {"weight_decay", 0.0}}};
    config["optimizer"] = optimizer;
    Training run(config);
    const auto before = run.masters();
    for (int s = 0; s < 3; ++s) run.step(0);
    const auto names = run.engine->parameter_names();
    const auto after = run.masters();
    for (size_t i = 0; i < names.size(); ++i) {
      const bool is_exempt = names[i] == "p1" || names[i] == "p2" || names[i] == "p3";
      if (after[i].numel() > 0) EXPECT_EQ(torch::equal(after[i], before[i]), is_exempt) << type.name << ": " << names[i];
    }
  }
}

TEST(Habits, AnOverflowChangesNothing) {
  for (const auto& type : types()) {
    Training run(config_of(type, {}, Dict{{"fp16", Dict{{"enabled", true}, {"initial_scale_power", 4}}}}));
    for (int s = 0; s < 3; ++s) EXPECT_TRUE(run.step(1e-3).applied) << type.name;
    const auto before = run.masters();
    EXPECT_FALSE(run.step(1e9).applied) << type.name;
    expect_same(run.masters(), before, type.name);
    Training straight(config_of(type, {}, Dict{{"fp16", Dict{{"enabled", true}, {"initial_scale_power", 4}}}}));
    for (int s = 0; s < 4; ++s) straight.step(1e-3);
    run.step(1e-3);
    expect_same(run.masters(), straight.masters(), type.name + " after the skipped step");
  }
}

TEST(Habits, EnginesOfOneProcessDoNotMeet) {
  for (const auto& type : types()) {
    Training alone(config_of(type)), one(config_of(type)), other(config_of(type.name == "AdamW" ? types()[2] : types()[1]));
    for (int s = 0; s < 4; ++s) {
      alone.step();
      one.step();
      other.step(0.3);
    }
    expect_same(one.masters(), alone.masters(), type.name);
  }
}

TEST(Habits, DoublePrecisionTrainsOrIsRefusedByName) {
  for (const auto& type : types()) {
    try {
      Training run(config_of(type), at::kDouble);
      const auto before = run.module->all[0].detach().clone();
      for (int s = 0; s < 4; ++s) run.step();
      EXPECT_EQ(run.module->all[0].scalar_type(), at::kDouble) << type.name;
      EXPECT_FALSE(torch::equal(run.module->all[0], before)) << type.name;
      EXPECT_TRUE(run.module->all[7].isfinite().all().item<bool>()) << type.name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("plugin " + type.name + " "));
      EXPECT_THAT(error.what(), testing::HasSubstr("does not take a fp64 parameter"));
    }
  }
}

TEST(Habits, SixteenBitsAreTheirMastersRounded) {
  for (const auto& type : types()) {
    for (const int64_t number : {0, 2}) {
      if (number > 0 && reduces_gradients(type)) continue;
      Dict more = stage(number);
      more["bf16"] = Dict{{"enabled", true}};
      Training run(config_of(type, {}, more));
      for (int s = 0; s < 4; ++s) run.step();
      const auto names = run.engine->parameter_names();
      const auto masters = run.masters();
      auto parameters = run.module->named_parameters();
      for (size_t i = 0; i < names.size(); ++i)
        EXPECT_TRUE(torch::equal(parameters[names[i]].detach(), masters[i].to(at::kBFloat16))) << type.name << ": " << names[i];
    }
  }
}

// From every optimizer to every other and back: before the first step, after a skipped one, and after some.
TEST(Habits, AnyOptimizerIsSwappedForAnyOther) {
  for (const auto& from : types())
    for (const auto& to : types()) {
      if (from.name == to.name || (to.name == "AdamW8bit")) continue;
      SCOPED_TRACE(from.name + " to " + to.name);
      for (const int steps : {0, 3}) {
        Training run(config_of(from));
        for (int s = 0; s < steps; ++s) run.step();
        const auto before = run.masters();
        run.engine->swap_optimizer(to.name, to.params);
        expect_same(run.masters(), before, "the swap");
        for (int s = 0; s < 3; ++s) EXPECT_TRUE(run.step().applied);
        for (const auto& p : run.masters()) EXPECT_TRUE(p.isfinite().all().item<bool>());
        run.engine->swap_optimizer(from.name, from.params);
        for (int s = 0; s < 2; ++s) EXPECT_TRUE(run.step().applied);
        for (const auto& p : run.masters()) EXPECT_TRUE(p.isfinite().all().item<bool>());
      }
    }
}

// A swapped-in optimizer trains as one that begins there: nothing of the former one remains.
TEST(Habits, ASwappedInOptimizerTrainsAsANewOne) {
  for (const auto& to : types()) {
    if (to.name == "AdamW8bit" || to.name == "SGD") continue;
    Training swapped(config_of(types()[2]));  // SGD
    swapped.engine->swap_optimizer(to.name, to.params);
    Training fresh(config_of(to));
    for (int s = 0; s < 5; ++s) {
      swapped.step();
      fresh.step();
    }
    const auto a = swapped.masters(), b = fresh.masters();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::allclose(a[i], b[i], 1e-6, 1e-7)) << to.name << ", parameter " << i;
  }
}

}  // namespace
}  // namespace gannet::test
