// Common programs with split parameters: each works, or gives an error that names the mistake.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "mesh/split_model.h"
#include "plugin/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;
using ranks::same;

template <class A, class B>
void same_parameters(A& found, B& expected, const std::string& what) {
  const auto there = expected.fp32_parameters(), here = found.fp32_parameters();
  for (size_t i = 0; i < there.size(); ++i) expect(here.at(i).second.equal(there[i].second), what + ": " + there[i].first);
}

void expect_ranks_succeed(const std::string& body, int count, std::map<std::string, std::string> environment = {}) {
  const TemporaryFolder folder;
  environment["FOLDER"] = folder.string();
  if (!environment.contains("TENSOR")) environment["TENSOR"] = "2";
  expect_all_succeed(run_ranks(body, count, {.environment = environment}));
}

// The state that a torch::optim::Optimizer serializes belongs to the parameters of its rank.
RANK_BODY(own_optimizer_of_split) {
  const std::string folder = variable("FOLDER") + "/run";
  const auto how = [](int64_t seed) { return Run::How{.seed = seed, .has_own_optimizer = true}; };
  Run straight(split_config(0), how(1));
  straight.train(0, 4);
  straight.engine->save_checkpoint(folder);
  straight.train(4, 4);
  Run resumed(split_config(0), how(8));
  resumed.engine->load_checkpoint(folder);
  resumed.train(4, 4);
  same_parameters(*resumed.engine, *straight.engine, "resumed with the program's own Adam");
  contains(message_of([&] {
             Run other(split_config(0), Run::How{.seed = 1, .has_own_optimizer = true, .pieces = 1});
             other.engine->load_checkpoint(folder);
           }),
           "the program's own optimizer for the parts of the model");
}
TEST(SplitHabits, TheProgramsOwnOptimizerResumesWithEachRanksStates) {
  expect_ranks_succeed("own_optimizer_of_split", 2);
  expect_ranks_succeed("own_optimizer_of_split", 4);
}
RANK_BODY(own_optimizer_elsewhere) {
  const std::string folder = variable("FOLDER") + "/run";
  Run run(split_config(0), Run::How{.has_own_optimizer = true});
  if (variable("TENSOR") == "2") {
    run.train(0, 4);
    run.engine->save_checkpoint(folder);
    return;
  }
  contains(message_of([&] { run.engine->load_checkpoint(folder); }), "the program's own optimizer for the parts of the model");
  run.engine->load_checkpoint(folder, {.load_optimizer_states = false});
}
TEST(SplitHabits, TheProgramsOwnOptimizersStatesFitNoOtherMesh) {
  const TemporaryFolder folder;
  for (const char* tensor : {"2", ""})
    expect_all_succeed(
        run_ranks("own_optimizer_elsewhere", 2, {.environment = {{"TENSOR", tensor}, {"FOLDER", folder.string()}}}));
}

// The states of LibTorch's own are the engine's, cut as the parameters are.
RANK_BODY(torch_optimizer_elsewhere) {
  const std::string folder = variable("FOLDER") + "/torch";
  const bool is_split = variable("TENSOR") == "2";
  Run run(split_config(is_split ? 1 : 2), Run::How{.seed = is_split ? 1 : 8, .has_torch_optimizer = true});
  if (is_split) {
    run.train(0, 4);
    run.engine->save_checkpoint(folder, {.tag = "split"});
    return;
  }
  run.engine->load_checkpoint(folder, {.tag = "split"});
  run.engine->save_checkpoint(folder, {.tag = "whole"});
  const auto before = tensors_of(folder, "split"), after = tensors_of(folder, "whole");
  same(after.size(), before.size(), "tensors");
  expect(before.contains("state/exp_avg/fused"), "it has the states of whole tensors");
  for (const auto& [name, tensor] : before) expect(after.at(name).equal(tensor), name);
}
TEST(SplitHabits, ThatOfLibTorchFitsAnyMesh) {
  const TemporaryFolder folder;
  for (const auto& [tensor, ranks] : {std::pair("2", 4), {"", 2}})
    expect_all_succeed(
        run_ranks("torch_optimizer_elsewhere", ranks, {.environment = {{"TENSOR", tensor}, {"FOLDER", folder.string()}}}));
}

// The rank that writes the model need not be the first along the axis data.
RANK_BODY(ranks_in_another_order) {
  const std::string folder = variable("FOLDER");
  int number = 0;
  for (const auto& order : {std::vector<uint32_t>{3, 2, 1, 0}, {2, 3, 0, 1}, {0, 1, 2, 3}}) {
    const std::string name = "model" + std::to_string(number++) + ".safetensors";
    Run run(split_config(1), Run::How{.order = order});
    run.engine->save_fp32_model(folder, name);
    run.world->barrier();
    const auto model = gannet::load_safetensors(folder + "/" + name);
    same(model.at("fused").size(0), 2 * kHidden, "rows in the file");
    expect(model.at("fused").equal(gannet::load_safetensors(folder + "/model0.safetensors").at("fused")), "the same values");
  }
}
TEST(SplitHabits, ModelsAreWrittenWholeWhateverTheOrderOfRanks) { expect_ranks_succeed("ranks_in_another_order", 4); }

// Gradients that are saved by rank are those of the rank's boxes.
RANK_BODY(other_boxes_between_boundaries) {
  const std::string folder = variable("FOLDER") + "/run";
  Run run(split_config(0));
  run.train(0, 3);
  run.engine->save_checkpoint(folder);
  Run other(split_config(0), Run::How{.pieces = 1});
  contains(message_of([&] { other.engine->load_checkpoint(folder); }), "in other boxes than here");
}
TEST(SplitHabits, GradientsOfOtherBoxesAreRefused) { expect_ranks_succeed("other_boxes_between_boundaries", 4); }

// Values that are written into split parameters differ between ranks; those that are written into replicas may not.
RANK_BODY(writes_in_place) {
  Run run(split_config(std::atoi(variable("STAGE").c_str())));
  run.train(0, 4);
  {
    torch::NoGradGuard no_grad;
    run.model->fused.clamp_(-0.1, 0.1);
    run.model->down.mul_(0.5);
  }
  run.train(4, 4);
}
TEST(SplitHabits, ValuesWrittenInPlaceAreTakenIn) {
  for (const char* stage : {"0", "2"}) {
    const auto whole = run_ranks("writes_in_place", 2, {.environment = {{"STAGE", stage}}});
    const auto split = run_ranks("writes_in_place", 4, {.environment = {{"STAGE", stage}, {"TENSOR", "2"}}});
    expect_all_succeed(whole);
    expect_all_succeed(split);
    const auto expected = figures(whole), found = figures(split);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-6 * std::abs(expected[i])) << i;
  }
}
RANK_BODY(a_replica_written_alone) {
  Run run(split_config(0));
  run.train(0, 2);
  if (run.world->rank() == 1) {
    torch::NoGradGuard no_grad;
    run.model->bias.add_(1);
  }
  contains(message_of([&] {
             run.train(2, 2);
             std::this_thread::sleep_for(std::chrono::milliseconds(500));  // a verdict is on its way
             run.train(4, 2);
           }),
           "what the program wrote into parameters");
}
TEST(SplitHabits, AReplicaWrittenOnOneRankAloneIsFound) { expect_ranks_succeed("a_replica_written_alone", 2); }

// Every rank learns of it, and can load.
RANK_BODY(a_flipped_bit) {
  const std::string folder = variable("FOLDER") + "/run";
  Run run(split_config(0));
  run.train(0, 4);
  run.engine->save_checkpoint(folder);
  const at::Tensor& flipped = variable("WHERE") == "split" ? run.model->fused : run.model->bias;
  if (run.world->rank() == 3) static_cast<uint32_t*>(flipped.mutable_data_ptr())[0] ^= 1 << 20;
  const std::string found = message_of([&] { run.train(4, 2); });
  contains(found, "the ranks have different values of '" + std::string(variable("WHERE") == "split" ? "fused" : "bias"));
  contains(found, variable("WHERE") == "split" ? "rank 3 and rank 1" : "rank 3");
  run.engine->load_checkpoint(folder);
  run.train(4, 4);
}
TEST(SplitHabits, AFlippedBitIsToldOnAllRanksAndALoadHelps) {
  for (const char* where : {"split", "whole"}) expect_ranks_succeed("a_flipped_bit", 4, {{"FINGERPRINT", "1"}, {"WHERE", where}});
}

// A state of a whole group is a single one, although the group's split parameters are separate.
RANK_BODY(a_state_of_the_group) {
  Dict config = split_config(0);
  config["optimizer"] = Dict{{"type", "Probe"}, {"params", Dict{{"lr", 0.01}}}};
  config["plugins"] = Dict{{"path", gannet::List{gannet::Value(PROBE_PLUGIN)}}};
  Run run(config);
  run.train(0, 2);
  run.engine->save_checkpoint(variable("FOLDER") + "/run");
  Run again(config, /*seed=*/4);
  again.engine->load_checkpoint(variable("FOLDER") + "/run");
  same_parameters(*again.engine, *run.engine, "loaded");
}
TEST(SplitHabits, AnOptimizersStateOfAGroupIsSavedOnce) { expect_ranks_succeed("a_state_of_the_group", 2); }

RANK_BODY(declared_too_late) {
  Run run(split_config(0));
  Dict config = config_with({});
  config["gannet"] = Dict{{"mesh", Dict{{"tensor", 2}}}};
  auto second = make_net(2);
  second->first->weight.set_requires_grad(false);
  auto late = gannet::initialize(second, {.config = config}).engine;
  gannet::declare_split(second->first->weight, gannet::split_evenly({32, 8}, 0, run.tensor->rank(), 2));
  contains(message_of([&] { late->save_checkpoint(variable("FOLDER") + "/late"); }), "declared after initialize");
}
TEST(SplitHabits, ADeclarationAfterInitializeIsAnError) { expect_ranks_succeed("declared_too_late", 2); }

}  // namespace
