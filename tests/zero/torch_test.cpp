// The program's own torch::optim optimizer at each stage and on each tier, beside LibTorch without an engine: the same to the
// bit, since its own step() works on every part of a tensor as on the whole.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <set>

#include "plugin/support.h"
#include "zero/torch_cases.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

const std::vector<Layout> kLayouts = {{0}, {1}, {1, "nvme"}, {2}, {2, "cpu"}, {3}, {3, "cpu"}, {3, "nvme"}};

RANK_BODY(torch_everywhere) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  size_t turn = 0;
  for (const auto& one : torch_cases()) {
    PlainTorch plain(one.make);
    plain.train(0, 20);
    // Four ranks have two cores to run on.
    for (const auto& layout : world->size() < 4 ? kLayouts : std::vector<Layout>{{3, "nvme"}}) {
      if (++turn % 3 != 0 && !ranks::is_full()) continue;  // each option set and each layout some times
      EngineTorch run(one.make, torch_config(layout));
      run.train(0, 20);
      expect_same(run.parameters(), plain.parameters(), one.name + layout.text());
      expect(run.engine->optimizer_states().size() == one.states.size(), one.name + " has its states and no more");
    }
  }
}

// Each step()'s masters are fp32, its gradients and the module's parameters 16 bits; fp16 ones are scaled.
RANK_BODY(torch_in_16_bits) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  for (const std::string dtype : {"bf16", "fp16"}) {
    const auto type = dtype == "bf16" ? at::kBFloat16 : at::kHalf;
    const double scale = dtype == "fp16" ? 1024 : 1;
    for (const char* name : {"SGD-nesterov", "AdamW", "Adagrad-decay", "RMSprop-centered"}) {
      const auto& one = torch_case_called(name);
      auto net = make_uneven();
      std::vector<at::Tensor> masters;
      for (auto& parameter : net->parameters()) {
        masters.push_back(parameter.detach().clone());
        parameter.set_data(parameter.to(type));
      }
      auto optimizer = one.make(masters);
      for (int64_t i = 0; i < 20; ++i) {
        auto [x, y] = make_batch(i, 4);
        const at::Tensor loss = net->forward(x, y);
        net->zero_grad();
        loss.backward(torch::full_like(loss, scale));
        for (size_t p = 0; p < masters.size(); ++p)
          masters[p].mutable_grad() = net->parameters()[p].grad().to(at::kFloat) / scale;
        optimizer->step();
        torch::NoGradGuard no_grad;
        for (size_t p = 0; p < masters.size(); ++p) net->parameters()[p].copy_(masters[p]);
      }
      std::vector<std::pair<std::string, at::Tensor>> expected;
      for (size_t p = 0; p < masters.size(); ++p) expected.emplace_back(net->named_parameters().keys()[p], masters[p]);
      for (const auto& layout : {Layout{0}, Layout{2}, Layout{3, "nvme"}}) {
        Dict config = torch_config(layout, dtype);
        config["gannet"] = Dict{{"debug_plugins", layout.stage == 2}};  // it writes nothing but what is its own
        EngineTorch run(one.make, config);
        run.train(0, 20);
        expect_same(run.parameters(), by_name(expected), one.name + " in " + dtype + layout.text());
      }
    }
  }
}

// A device with its own memory: gradients come to the host, where the update runs, and parameters go back.
RANK_BODY(torch_beside_a_device) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  for (const char* name : {"SGD-dampening", "AdamW-amsgrad", "Adagrad-decay"}) {
    const auto& one = torch_case_called(name);
    PlainTorch plain(one.make);
    plain.train(0, 20);
    for (const auto& layout : {Layout{0}, Layout{1, "cpu"}, Layout{2, "cpu"}, Layout{3, "nvme"}}) {
      Dict config = torch_config(layout);
      config["accelerator"] = Dict{{"type", "fake"}};
      EngineTorch run(one.make, config);
      run.train(0, 20);
      expect_same(run.parameters(), plain.parameters(), one.name + " beside a device" + layout.text());
    }
  }
}

// The norm is summed in another order at each layout, so that clipping changes last bits.
RANK_BODY(torch_clipped) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  for (const char* name : {"SGD-momentum", "Adam-amsgrad"}) {
    const auto& one = torch_case_called(name);
    PlainTorch plain(one.make);
    for (int64_t i = 0; i < 20; ++i) {
      plain.optimizer->zero_grad();
      auto [x, y] = make_batch(i, 4);
      plain.net->forward(x, y).backward();
      torch::nn::utils::clip_grad_norm_(plain.net->parameters(), 0.2);
      plain.optimizer->step();
    }
    for (const auto& layout : {Layout{0}, Layout{1}, Layout{3, "cpu"}}) {
      Dict config = torch_config(layout);
      config["gradient_clipping"] = 0.2;
      EngineTorch run(one.make, config);
      run.train(0, 20);
      const double off = difference(run.parameters(), plain.parameters());
      expect(off < 1e-5, one.name + " clipped" + layout.text() + " is off by " + std::to_string(off * 1e6) + "e-6");
    }
  }
}

// Groups of the program's with options of their own; what it sets on its object in mid-run, and what the engine's calls set.
RANK_BODY(torch_options) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  using torch::optim::AdamOptions;
  const MakeTorchOptimizer make = [](std::vector<at::Tensor> parameters) {
    std::vector<at::Tensor> matrices, vectors;
    for (auto& parameter : parameters) (parameter.dim() > 1 ? matrices : vectors).push_back(parameter);
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(matrices, std::make_unique<AdamOptions>(AdamOptions(1e-2).weight_decay(0.1)));
    groups.emplace_back(vectors, std::make_unique<AdamOptions>(AdamOptions(1e-3).amsgrad(true).betas({0.5, 0.9})));
    return std::make_shared<torch::optim::Adam>(groups, AdamOptions(1e-2));
  };
  const auto set = [](torch::optim::Optimizer& optimizer, int64_t step) {
    auto& first = static_cast<AdamOptions&>(optimizer.param_groups()[0].options());
    auto& second = static_cast<AdamOptions&>(optimizer.param_groups()[1].options());
    if (step == 3) first.set_lr(3e-3);
    if (step == 5) second.betas({0.7, 0.99}), second.eps(1e-5);
    if (step == 8) first.weight_decay(0.01);
  };
  PlainTorch plain(make);
  for (int64_t i = 0; i < 20; ++i) {
    set(*plain.optimizer, i);
    if (i == 12) static_cast<AdamOptions&>(plain.optimizer->param_groups()[1].options()).lr(5e-3).weight_decay(0.2);
    plain.step(i);
  }
  for (const auto& layout : kLayouts) {
    EngineTorch run(make, torch_config(layout));
    auto handle = run.engine->optimizer_handle();
    ranks::same(handle->type(), std::string("user"), "its type");
    ranks::same(handle->group(1).get("betas[0]"), 0.5, "a number of the program's");
    for (int64_t i = 0; i < 20; ++i) {
      set(*run.optimizer, i);
      if (i == 12) {
        handle->group(1).set("lr", 5e-3);
        handle->group(1).set("weight_decay", 0.2);
      }
      run.step(i);
    }
    expect_same(run.parameters(), plain.parameters(), "groups and options" + layout.text());
    ranks::same(handle->group(0).get("lr"), 3e-3, "the handle follows the program");
    ranks::same(run.optimizer->param_groups()[1].options().get_lr(), 5e-3, "the object follows the handle");
  }
}

// A schedule sets the rate behind every update; what the program sets after that holds for one step.
RANK_BODY(torch_schedule) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  const auto rate = [](int64_t step) { return 0.05 / static_cast<double>(1 + step); };
  const auto& one = torch_case_called("SGD-nesterov");
  PlainTorch plain(one.make);
  for (int64_t i = 0; i < 20; ++i) {
    plain.optimizer->param_groups()[0].options().set_lr(i == 4 ? 0.02 : rate(i));
    plain.step(i);
  }
  for (const auto& layout : kLayouts) {
    EngineTorch run(one.make, torch_config(layout), gannet::LrSchedule(rate));
    for (int64_t i = 0; i < 20; ++i) {
      if (i == 4) run.engine->set_lr(0.02);
      run.step(i);
      ranks::same(run.optimizer->param_groups()[0].options().get_lr(), i == 4 ? 0.02 : rate(i), "the object's rate");
    }
    expect_same(run.parameters(), plain.parameters(), "with a schedule" + layout.text());
  }
  // No schedule: what the program or the engine sets stays.
  EngineTorch run(one.make, torch_config({2}));
  run.step(0);
  run.optimizer->param_groups()[0].options().set_lr(0.01);
  run.step(1);
  ranks::same(run.engine->get_lr()[0], 0.01, "the program's rate");
  run.engine->set_lr(0.02);
  run.step(2);
  run.step(3);
  ranks::same(run.optimizer->param_groups()[0].options().get_lr(), 0.02, "the engine's rate");
}

// A plugin's schedule sets all values that have a role, including the betas.
RANK_BODY(torch_one_cycle) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  Dict config = torch_config({2});
  config["scheduler"] = Dict{{"type", "OneCycle"},
                             {"params", Dict{{"cycle_min_lr", 1e-3},
                                             {"cycle_max_lr", 1e-2},
                                             {"cycle_first_step_size", 5},
                                             {"cycle_min_mom", 0.6},
                                             {"cycle_max_mom", 0.9}}}};
  const auto& one = torch_case_called("Adam");
  EngineTorch run(one.make, config);
  PlainTorch plain(one.make);
  auto& options = static_cast<torch::optim::AdamOptions&>(plain.optimizer->param_groups()[0].options());
  std::set<double> seen;
  for (int64_t i = 0; i < 20; ++i) {
    auto group = run.engine->optimizer_handle()->group(0);
    options.lr(group.get("lr")).betas({group.get("betas[0]"), group.get("betas[1]")});
    seen.insert(group.get("betas[0]"));
    plain.step(i);
    run.step(i);
  }
  expect(seen.size() > 3, "the schedule moves beta1");
  expect_same(run.parameters(), plain.parameters(), "with a schedule of the betas");
}

// Frozen at first, thawed, frozen for a while.
RANK_BODY(torch_frozen) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  size_t turn = 0;
  for (const char* name : {"SGD-dampening", "Adam-amsgrad", "Adagrad-decay", "RMSprop-centered"}) {
    ++turn;
    const auto& one = torch_case_called(name);
    const auto freeze = [](UnevenImpl& net, int64_t step) {
      if (step == 0) net.middle->weight.requires_grad_(false);
      if (step == 6) net.middle->weight.requires_grad_(true);
      if (step == 10) net.first->weight.requires_grad_(false);
      if (step == 13) net.first->weight.requires_grad_(true);
    };
    PlainTorch plain(one.make);
    for (int64_t i = 0; i < 20; ++i) {
      freeze(*plain.net, i);
      plain.step(i);
    }
    for (const auto& layout : kLayouts) {
      if (++turn % 2 != 0 && !ranks::is_full()) continue;
      auto net = make_uneven();
      freeze(*net, 0);
      EngineTorch run(net, one.make, torch_config(layout));
      for (int64_t i = 0; i < 20; ++i) {
        if (i > 0) freeze(*net, i);
        run.step(i);
      }
      for (const auto& [key, value] : run.engine->fp32_parameters())
        expect_same(value, plain.net->named_parameters()[key].detach(), one.name + " frozen" + layout.text() + ": " + key);
    }
  }
}

class TorchOptimizer : public testing::Test {
 protected:
  void run(const std::string& body, int ranks) {
    ranks::expect_all_succeed(run_ranks(body, ranks, {.environment = {{"FOLDER", folder_.string()}}}));
  }
  const TemporaryFolder folder_;
};

TEST_F(TorchOptimizer, TrainsAsWithoutAnEngineOnOneRank) { run("torch_everywhere", 1); }
TEST_F(TorchOptimizer, TrainsAsWithoutAnEngineOnTwoRanks) { run("torch_everywhere", 2); }
TEST_F(TorchOptimizer, TrainsAsWithoutAnEngineOnFourRanks) { run("torch_everywhere", 4); }
TEST_F(TorchOptimizer, StepsFp32MastersOnOneRank) { run("torch_in_16_bits", 1); }
TEST_F(TorchOptimizer, StepsFp32MastersOnTwoRanks) { run("torch_in_16_bits", 2); }
TEST_F(TorchOptimizer, IsOffloadedFromADeviceOnOneRank) { run("torch_beside_a_device", 1); }
TEST_F(TorchOptimizer, IsOffloadedFromADeviceOnTwoRanks) { run("torch_beside_a_device", 2); }
TEST_F(TorchOptimizer, TakesClippedGradients) { run("torch_clipped", 2); }
TEST_F(TorchOptimizer, ReadsTheProgramsOptionsAtEachStepOnOneRank) { run("torch_options", 1); }
TEST_F(TorchOptimizer, ReadsTheProgramsOptionsAtEachStepOnTwoRanks) { run("torch_options", 2); }
TEST_F(TorchOptimizer, FollowsASchedule) { run("torch_schedule", 2); }
TEST_F(TorchOptimizer, FollowsAScheduleOfTheBetas) { run("torch_one_cycle", 2); }
TEST_F(TorchOptimizer, CountsTheUpdatesOfEachParameterOnOneRank) { run("torch_frozen", 1); }
TEST_F(TorchOptimizer, CountsTheUpdatesOfEachParameterOnTwoRanks) { run("torch_frozen", 2); }

}  // namespace
