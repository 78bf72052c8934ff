// The states of the program's own torch::optim optimizer: in checkpoints for any layout, from checkpoints of what it serializes
// itself, in its object; and what is refused.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "plugin/support.h"
#include "zero/torch_cases.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

// A class of the program's own with any rule: values that the engine does not know are serialized
// by LibTorch's object.
struct Own : torch::optim::AdamW {
  using AdamW::AdamW;
};
struct OwnSgd : torch::optim::SGD {
  using SGD::SGD;
};

MakeTorchOptimizer make_own() {
  return [](std::vector<at::Tensor> parameters) {
    return std::make_shared<Own>(std::move(parameters), torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
  };
}

constexpr const char* kSaved[] = {"SGD-dampening", "AdamW-amsgrad", "Adagrad-decay", "RMSprop-centered"};

Layout layout_of_environment() { return {std::stoll(variable("STAGE")), variable("TIER")}; }

// Ten steps and a save, or a load and ten steps: each with a rate that only the checkpoint or the object knows.
RANK_BODY(torch_saves) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  for (const char* name : kSaved) {
    EngineTorch run(torch_case_called(name).make, torch_config(layout_of_environment()));
    run.optimizer->param_groups()[0].options().set_lr(2e-3);
    run.train(0, 10);
    run.engine->save_checkpoint(variable("FOLDER") + "/" + name, {.tag = "ten"});
  }
}
RANK_BODY(torch_resumes) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  for (const char* name : kSaved) {
    const auto& one = torch_case_called(name);
    PlainTorch plain(one.make);
    plain.optimizer->param_groups()[0].options().set_lr(2e-3);
    plain.train(0, 20);
    EngineTorch run(one.make, torch_config(layout_of_environment()));
    run.train(50, 2);  // of another run, which the load ends
    const auto receipt = run.engine->load_checkpoint(variable("FOLDER") + "/" + name, {.tag = "ten", .lock_folder = false});
    ranks::same(receipt.states, static_cast<int64_t>(6 * one.states.size()), "states of the receipt");
    ranks::same(run.optimizer->param_groups()[0].options().get_lr(), 2e-3, "the object's rate");
    run.train(10, 10);
    expect_same(run.parameters(), plain.parameters(), one.name + " resumed" + layout_of_environment().text());
  }
}

// Checkpoints of what the object serializes of itself: those of earlier versions, and of a class of the program's own.
double falling(int64_t step) { return 0.05 / static_cast<double>(1 + step); }

MakeTorchOptimizer make_own_sgd() {
  return [](std::vector<at::Tensor> parameters) {
    return std::make_shared<OwnSgd>(std::move(parameters),
                                    torch::optim::SGDOptions(0.05).momentum(0.9).dampening(0.5).weight_decay(0.1));
  };
}

RANK_BODY(torch_saves_bytes) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  EngineTorch run(make_own(), torch_config({0}));
  run.optimizer->param_groups()[0].options().set_lr(2e-3);
  run.train(0, 10);
  run.engine->save_checkpoint(variable("FOLDER") + "/bytes");
  EngineTorch other(make_own_sgd(), torch_config({0}), gannet::LrSchedule(falling));
  other.train(0, 10);
  other.engine->save_checkpoint(variable("FOLDER") + "/sgd");
}
RANK_BODY(torch_reads_bytes) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  const auto& adamw = torch_case_called("AdamW");
  PlainTorch plain(adamw.make);
  plain.optimizer->param_groups()[0].options().set_lr(2e-3);
  plain.train(0, 20);
  const auto& sgd = torch_case_called("SGD-dampening");
  PlainTorch scheduled(sgd.make);
  for (int64_t i = 0; i < 20; ++i) {
    scheduled.optimizer->param_groups()[0].options().set_lr(falling(i));
    scheduled.step(i);
  }
  const auto resume = [](EngineTorch& run, const std::string& tag, const PlainTorch& expected, const std::string& what) {
    run.train(50, 2);
    run.engine->load_checkpoint(variable("FOLDER") + "/" + tag, {.lock_folder = false});
    run.train(10, 10);
    expect_same(run.parameters(), expected.parameters(), what + " from what it serialized");
  };
  for (const auto& layout : {Layout{0}, Layout{2}, Layout{3, "nvme"}}) {
    EngineTorch one(adamw.make, torch_config(layout));
    resume(one, "bytes", plain, adamw.name + layout.text());
    EngineTorch two(sgd.make, torch_config(layout), gannet::LrSchedule(falling));
    resume(two, "sgd", scheduled, sgd.name + layout.text());
  }
  EngineTorch own(make_own_sgd(), torch_config({0}), gannet::LrSchedule(falling));
  resume(own, "sgd", scheduled, "a class of the program's own");
  EngineTorch run(torch_case_called("RMSprop").make, torch_config({0}));
  contains(message_of([&] { run.engine->load_checkpoint(variable("FOLDER") + "/bytes", {.lock_folder = false}); }),
           "has the states of another optimizer of the program than torch::optim::RMSprop");
}

// To a class that the engine does not know there is no way back, and to the config's AdamW there is.
RANK_BODY(torch_saved_for_others) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  const auto& one = torch_case_called("AdamW");
  const std::string folder = variable("FOLDER") + "/run";
  EngineTorch run(one.make, torch_config({2}));
  run.train(0, 5);
  run.engine->save_checkpoint(folder);
  const at::Tensor average = run.engine->full_optimizer_state("middle.weight", "exp_avg");
  {
    EngineTorch own(make_own(), torch_config({0}));
    contains(message_of([&] { own.engine->load_checkpoint(folder, {.lock_folder = false}); }),
             "the program gave its own optimizer, and the checkpoint has none of that kind");
    EngineTorch sgd(torch_case_called("SGD-momentum").make, torch_config({2}));
    const std::string text = message_of([&] { sgd.engine->load_checkpoint(folder, {.lock_folder = false}); });
    contains(text, "the checkpoint was saved with optimizer 'torch::optim::AdamW', and this engine has 'torch::optim::SGD'");
    contains(text, "missing in the checkpoint: state/momentum_buffer/");
  }
  Dict config = torch_config({3});
  config["optimizer"] = adamw(1e-2, 0.1);
  auto engine = gannet::initialize(make_uneven(), {.config = config}).engine;
  const auto receipt = engine->load_checkpoint(folder, {.lock_folder = false});
  contains(receipt.to_string(), "saved with optimizer 'torch::optim::AdamW', and this engine has 'AdamW'");
  expect_same(engine->full_optimizer_state("middle.weight", "exp_avg"), average, "a state of the config's AdamW");
}

// States of an object that was trained before initialize are taken over, with their step counts, at every layout.
RANK_BODY(torch_trained_before) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  for (const char* name : kSaved) {
    const auto& one = torch_case_called(name);
    PlainTorch plain(one.make);
    plain.train(0, 10);
    for (const auto& layout : {Layout{0}, Layout{1}, Layout{2, "cpu"}, Layout{3}, Layout{3, "nvme"}}) {
      PlainTorch before(one.make);
      before.train(0, 5);
      before.net->zero_grad();  // of its last step: they would be added to the engine's first
      EngineTorch run(before.net, [&](std::vector<at::Tensor>) { return before.optimizer; }, torch_config(layout));
      run.train(5, 2);
      const std::string folder = variable("FOLDER") + "/" + name + std::to_string(layout.stage) + layout.tier;
      run.engine->save_checkpoint(folder);  // with counts that begin before the run
      EngineTorch resumed(one.make, torch_config({1}));
      resumed.engine->load_checkpoint(folder, {.lock_folder = false});
      for (auto* each : {&run, &resumed}) {
        each->train(7, 3);
        expect_same(each->parameters(), plain.parameters(), one.name + " trained before" + layout.text());
      }
    }
  }
}

// Where a rank has whole states the object shows them: the program saves it, writes it, steps it by hand afterwards.
RANK_BODY(torch_object_at_stage_0) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  for (const char* name : kSaved) {
    const auto& one = torch_case_called(name);
    PlainTorch plain(one.make);
    plain.train(0, 15);
    EngineTorch run(one.make, torch_config({0}));
    run.train(0, 5);
    const std::string file = variable("FOLDER") + "/" + name + std::to_string(world->rank()) + ".pt";
    torch::save(*run.optimizer, file);
    PlainTorch copy(one.make);
    {
      torch::NoGradGuard no_grad;
      for (size_t p = 0; p < copy.net->parameters().size(); ++p) copy.net->parameters()[p].copy_(run.net->parameters()[p]);
    }
    torch::load(*copy.optimizer, file);
    copy.train(5, 10);
    expect_same(copy.parameters(), plain.parameters(), one.name + ": torch::save of the object");

    std::vector<at::Tensor> at_five;
    for (const auto& parameter : run.net->parameters()) at_five.push_back(parameter.detach().clone());
    run.train(5, 3);
    torch::load(*run.optimizer, file);  // five updates behind it again
    {
      torch::NoGradGuard no_grad;
      for (size_t p = 0; p < at_five.size(); ++p) run.net->parameters()[p].copy_(at_five[p]);
    }
    run.train(5, 5);
    run.engine.reset();
    for (int64_t i = 10; i < 15; ++i) {
      run.optimizer->zero_grad();
      auto [x, y] = make_batch(i, 4);
      run.net->forward(x, y).backward();
      run.optimizer->step();
    }
    expect_same(parameters_by_name(*run.net), plain.parameters(),
                one.name + ": torch::load into the object, and steps behind the engine");
  }
}

// Elsewhere the object has no states, and begins again behind its engine.
RANK_BODY(torch_object_of_shards) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  for (const char* name : kSaved)
    for (const auto& layout : {Layout{2}, Layout{1, "cpu"}}) {
      const auto& one = torch_case_called(name);
      EngineTorch run(one.make, torch_config(layout));
      run.train(0, 3);
      if (world->size() > 1 || layout.tier != "none") expect(run.optimizer->state().empty(), "states are the engine's alone");
      run.engine.reset();
      const at::Tensor before = run.net->first->weight.detach().clone();
      auto [x, y] = make_batch(3, 4);
      run.net->forward(x, y).backward();
      run.optimizer->step();
      expect(!torch::equal(run.net->first->weight, before), one.name + " steps the module's parameters again");
    }
}

std::string told(const MakeTorchOptimizer& make, const Layout& layout) {
  return message_of([&] { EngineTorch run(make, torch_config(layout)); });
}

struct SpectrumImpl : torch::nn::Module {
  SpectrumImpl() { spectrum = register_parameter("spectrum", torch::ones({8}, at::kComplexFloat)); }
  at::Tensor forward(const at::Tensor& x) { return at::real(spectrum * x).square().mean(); }
  at::Tensor spectrum;
};

RANK_BODY(torch_refusals) {
  torch::set_num_threads(1);
  auto world = gannet::test::world();
  for (const auto& layout : {Layout{1}, Layout{3}, Layout{2, "nvme"}}) {
    if (world->size() == 1 && layout.tier == "none") continue;
    const std::string text = told(make_own(), layout);
    contains(text, "the program's own optimizer is a ");
    contains(text, "Own");
    contains(text, "docs/plugin_authors.md");
    auto net = std::make_shared<SpectrumImpl>();
    contains(message_of([&] {
               gannet::initialize(
                   net, {.config = torch_config(layout), .optimizer = std::make_shared<torch::optim::Adam>(net->parameters())});
             }),
             "with complex parameters only SGD's");
    contains(told([](std::vector<at::Tensor> p) { return std::make_shared<torch::optim::LBFGS>(std::move(p)); }, layout),
             "torch::optim::LBFGS evaluates the loss again inside step()");
  }
  EngineTorch adam(torch_case_called("Adam").make, torch_config({2}));
  adam.train(0, 1);
  contains(message_of([&] { adam.engine->swap_optimizer("SGD", "{}"); }),
           "the program's own torch::optim::Optimizer steps the parameters");
  const at::Tensor before = adam.parameters();
  static_cast<torch::optim::AdamOptions&>(adam.optimizer->param_groups()[0].options()).amsgrad(true);
  contains(message_of([&] { adam.step(1); }), "so that 'max_exp_avg_sq' is kept for group 0");
  static_cast<torch::optim::AdamOptions&>(adam.optimizer->param_groups()[0].options()).amsgrad(false);
  adam.optimizer->add_parameters({torch::zeros({3}, torch::requires_grad())});
  contains(message_of([&] { adam.step(1); }), "put a tensor of shape [3] into its torch::optim::Adam after initialize");
  adam.optimizer->param_groups()[0].params().pop_back();
  expect_same(adam.parameters(), before, "what is refused changes nothing");
  // A state that lacks what the rule keeps, put there between two steps.
  auto& states = adam.optimizer->state();
  const void* const key = adam.net->first->weight.unsafeGetTensorImpl();
  auto wrong = std::make_unique<torch::optim::AdamParamState>();
  wrong->step(3);
  states[const_cast<void*>(key)] = std::move(wrong);
  contains(message_of([&] { adam.step(1); }), "was given a state of 'first.weight' without 'exp_avg'");
  states.erase(const_cast<void*>(key));
}

// The ranks' objects are the program's to keep alike: what differs is found before anything is updated.
RANK_BODY(torch_class_of_one_rank) {
  auto world = gannet::test::world();
  contains(told(torch_case_called(world->rank() == 0 ? "Adam" : "AdamW").make, {1}), "the program's own optimizer");
}
RANK_BODY(torch_rate_of_one_rank) {
  auto world = gannet::test::world();
  EngineTorch run(torch_case_called("Adam").make, torch_config({1}));
  if (world->rank() == 0) run.optimizer->param_groups()[0].options().set_lr(0.5);
  contains(message_of([&] { run.step(0); }), "lr of group 0 is");
}
RANK_BODY(torch_state_of_one_rank) {
  auto world = gannet::test::world();
  PlainTorch trained(torch_case_called("Adam").make);
  if (world->rank() == 0) trained.train(0, 2);
  trained.net->zero_grad();
  EngineTorch run(trained.net, [&](std::vector<at::Tensor>) { return trained.optimizer; }, torch_config({1}));
  contains(message_of([&] { run.step(0); }), "the program wrote into parameters and its optimizer");
}

class TorchStates : public testing::Test {
 protected:
  void run(const std::string& body, int ranks, const Layout& layout = {0}) {
    ranks::expect_all_succeed(run_ranks(
        body, ranks,
        {.environment = {{"FOLDER", folder_.string()}, {"STAGE", std::to_string(layout.stage)}, {"TIER", layout.tier}}}));
  }
  const TemporaryFolder folder_;
};

TEST_F(TorchStates, OfShardsResumeAtAnyLayout) {
  run("torch_saves", 2, {2});
  run("torch_resumes", 1, {0});
  run("torch_resumes", 2, {3, "nvme"});
  run("torch_resumes", 4, {1});
}
TEST_F(TorchStates, OfOneRankResumeAtAnyLayout) {
  run("torch_saves", 1, {0});
  run("torch_resumes", 2, {0});
  run("torch_resumes", 2, {3});
  run("torch_resumes", 1, {1, "cpu"});
}
TEST_F(TorchStates, OfADriveResumeAtAnyLayout) {
  run("torch_saves", 2, {3, "nvme"});
  run("torch_resumes", 1, {2, "nvme"});
  run("torch_resumes", 2, {2, "cpu"});
}
TEST_F(TorchStates, ThatAnObjectSerializedAreCut) {
  run("torch_saves_bytes", 2);
  run("torch_reads_bytes", 1);
  run("torch_reads_bytes", 2);
}
TEST_F(TorchStates, FitTheConfigsOptimizerOfThatName) { run("torch_saved_for_others", 2); }
TEST_F(TorchStates, ThatTheObjectBringsContinueOnOneRank) { run("torch_trained_before", 1); }
TEST_F(TorchStates, ThatTheObjectBringsContinueOnTwoRanks) { run("torch_trained_before", 2); }
TEST_F(TorchStates, AreTheObjectsOwnWhereTheyAreWhole) { run("torch_object_at_stage_0", 2); }
TEST_F(TorchStates, AreTheEnginesWhereTheyAreShards) { run("torch_object_of_shards", 2); }
TEST_F(TorchStates, OfOtherRulesAreRefusedOnOneRank) { run("torch_refusals", 1); }
TEST_F(TorchStates, OfOtherRulesAreRefusedOnTwoRanks) { run("torch_refusals", 2); }
TEST_F(TorchStates, ThatDifferAmongRanksAreFound) {
  for (const char* body : {"torch_class_of_one_rank", "torch_rate_of_one_rank", "torch_state_of_one_rank"}) run(body, 2);
}

}  // namespace
