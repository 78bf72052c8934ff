// Parameters that the axis tensor splits: a model of tensor-parallel layers trains as the whole one does, and its checkpoints are
// those of the whole one.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "mesh/split_model.h"
#include "plugin/support.h"

namespace {

using namespace gannet::test;
using gannet::Box;
using gannet::Dict;
using gannet::Error;
using gannet::ErrorCode;
using gannet::TensorSplit;
using gannet::Value;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;
using ranks::same;

RANK_BODY(trains_split) {
  for (const int64_t stage : {0, 1, 2, 3}) {
    Run run(split_config(stage));
    run.train(0, 8);
    const std::string name = "stage" + std::to_string(stage) + variable("TENSOR");
    run.engine->save_fp32_model(variable("FOLDER"), name + ".safetensors");
    run.engine->save_16bit_model(variable("FOLDER"), name + "_as_trained.pt");
    run.engine->save_checkpoint(variable("FOLDER") + "/" + name);
  }
}
TEST(Split, AModelOfSplitLayersTrainsAsTheWholeOne) {
  const TemporaryFolder folder;
  const auto run = [&](int count, const char* tensor) {
    const auto outcomes = run_ranks("trains_split", count, {.environment = {{"TENSOR", tensor}, {"FOLDER", folder.string()}}});
    expect_all_succeed(outcomes);
    return figures(outcomes);
  };
  const auto whole = run(2, ""), split = run(4, "2"), more = run(3, "3");
  ASSERT_EQ(whole.size(), 4u * 4 * 2);  // stages, steps, loss and norm
  ASSERT_EQ(split.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(split[i], whole[i], 2e-6 * std::abs(whole[i])) << i;
  EXPECT_EQ(more.size(), whole.size());
  for (const char stage : {'0', '1', '2', '3'}) {
    const auto name = folder.string() + "/stage" + stage;
    const auto expected = gannet::load_safetensors(name + ".safetensors"),
               found = gannet::load_safetensors(name + "2.safetensors"), checkpointed = tensors_of(name + "2", "global_step4");
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [key, tensor] : expected) {
      ASSERT_EQ(found.at(key).sizes(), tensor.sizes()) << key;
      EXPECT_LT(difference(found.at(key), tensor), 2e-6) << key << ", stage " << stage;
      EXPECT_TRUE(found.at(key).equal(checkpointed.at("parameter/" + key))) << key << ", stage " << stage;
    }
  }
}

// Whole tensors in a checkpoint: it loads at any mesh, to the bit, and states with it.
RANK_BODY(saves_split) {
  const std::string folder = variable("FOLDER");
  Run run(split_config(std::atoi(variable("STAGE").c_str()), variable("TIER")), /*seed=*/variable("LOAD").empty() ? 1 : 7);
  if (variable("LOAD").empty())
    run.train(0, 4);
  else
    run.engine->load_checkpoint(folder + "/" + variable("LOAD"));
  run.engine->save_checkpoint(folder + "/" + variable("SAVE"), {.tag = "all"});
}
TEST(Split, ACheckpointLoadsAtEveryMeshAndBack) {
  for (const auto& [stage, tier] : {std::pair{"1", ""}, {"3", ""}, {"2", "nvme"}}) {
    const TemporaryFolder folder;
    std::map<std::string, at::Tensor> expected;
    std::string from;
    std::vector<std::pair<int, std::string>> meshes = {{4, "2"}, {1, ""}, {4, "2"}};
    if (stage == std::string("3") || ranks::is_full())
      meshes = {{4, "2"}, {1, ""}, {4, ""}, {2, "2"}, {4, "4"}, {3, "3"}, {4, "2"}};
    for (const auto& [count, tensor] : meshes) {
      const std::string to = std::to_string(count) + tensor + from;
      expect_all_succeed(run_ranks("saves_split", count,
                                   {.environment = {{"TENSOR", tensor},
                                                    {"STAGE", stage},
                                                    {"TIER", tier},
                                                    {"FOLDER", folder.string()},
                                                    {"LOAD", from},
                                                    {"SAVE", to}}}));
      const auto found = tensors_of(folder.string() + "/" + to, "all");
      if (from.empty()) expected = found;
      ASSERT_EQ(found.size(), expected.size());
      for (const auto& [name, tensor_there] : expected) {
        ASSERT_EQ(found.at(name).sizes(), tensor_there.sizes()) << name;
        EXPECT_TRUE(found.at(name).equal(tensor_there)) << name << " with " << count << " ranks, tensor " << tensor;
      }
      from = to;
    }
  }
}

// Between two boundaries: gradients are saved by rank, or summed, each as its parameter is split.
RANK_BODY(continues_split) {
  for (const int64_t stage : {0, 2}) {
    const std::string folder = variable("FOLDER") + "/" + std::to_string(stage);
    Run straight(split_config(stage));
    straight.train(0, 3);
    straight.engine->save_checkpoint(folder);
    straight.train(3, 5);
    Run resumed(split_config(stage), /*seed=*/9);
    resumed.engine->load_checkpoint(folder);
    resumed.train(3, 5);
    const auto expected = straight.engine->fp32_parameters(), found = resumed.engine->fp32_parameters();
    for (size_t i = 0; i < expected.size(); ++i)
      expect(found.at(i).second.equal(expected[i].second), "resumed: " + expected[i].first);
  }
}
TEST(Split, ResumesBetweenTwoBoundariesToTheBit) {
  const TemporaryFolder folder;
  expect_all_succeed(run_ranks("continues_split", 4, {.environment = {{"TENSOR", "2"}, {"FOLDER", folder.string()}}}));
}

// A rule with a sum over each tensor gets that of the whole one, and its number of elements.
RANK_BODY(sums_of_split) {
  for (const int64_t stage : {0, 2}) {
    Dict config = split_config(stage);
    config["optimizer"] = Dict{{"type", "Sums"}, {"params", Dict{{"lr", 0.01}}}};
    config["plugins"] = Dict{{"path", gannet::List{Value(PROBE_PLUGIN)}}};
    Run run(config);
    run.train(0, 8);
  }
}
TEST(Split, SumsOfATensorAreThoseOfTheWholeOne) {
  const auto whole = run_ranks("sums_of_split", 2), split = run_ranks("sums_of_split", 4, {.environment = {{"TENSOR", "2"}}});
  expect_all_succeed(whole);
  expect_all_succeed(split);
  const auto expected = figures(whole), found = figures(split);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-6 * std::abs(expected[i])) << i;
}

RANK_BODY(precisions_of_split) {
  for (const char* dtype : {"bf16", "fp16"})
    for (const int64_t stage : {0, 1, 2, 3}) {
      Dict config = split_config(stage);
      config[dtype] = Dict{{"enabled", true}};
      Run run(config);
      run.train(0, 8);
      run.engine->save_checkpoint(variable("FOLDER") + "/" + dtype + std::to_string(stage));
      Run again(config, /*seed=*/3);
      again.engine->load_checkpoint(variable("FOLDER") + "/" + dtype + std::to_string(stage));
      const auto expected = run.engine->fp32_parameters(), found = again.engine->fp32_parameters();
      for (size_t i = 0; i < expected.size(); ++i)
        expect(found.at(i).second.equal(expected[i].second), "in 16 bits: " + expected[i].first);
    }
}
TEST(Split, TrainsAndResumesIn16Bits) {
  const TemporaryFolder folder;
  expect_all_succeed(run_ranks("precisions_of_split", 4, {.environment = {{"TENSOR", "2"}, {"FOLDER", folder.string()}}}));
}

RANK_BODY(weights_of_split) {
  const std::string folder = variable("FOLDER");
  for (const int64_t stage : {0, 3}) {
    Run run(split_config(stage), /*seed=*/5);
    run.engine->save_fp32_model(folder, "whole" + std::to_string(stage) + ".safetensors");
    run.world->barrier();
    torch::manual_seed(6);
    GatedImpl other(*run.tensor, kHidden);
    gannet::load_weights(other, folder + "/whole" + std::to_string(stage) + ".safetensors");
    torch::manual_seed(5);
    GatedImpl expected(*run.tensor, kHidden);
    for (const auto& entry : expected.named_parameters())
      expect(other.named_parameters()[entry.key()].equal(entry.value()), "loaded: " + entry.key());
    contains(message_of([&] { gannet::save_weights(other, folder + "/mine.safetensors"); }), "is split among ranks");
    // A split parameter that is not trained.
    other.fused.set_requires_grad(false);
    Dict config = split_config(stage);
    config["gannet"] = Dict{{"mesh", Dict{{"tensor", 2}}}};
    const auto shared = std::shared_ptr<GatedImpl>(&other, [](auto*) {});
    auto engine = gannet::initialize(shared, {.config = config}).engine;
    auto [x, y] = make_batch(engine->rank(), 4);
    for (int i = 0; i < 2; ++i) {
      engine->backward(engine->forward(x, y));
      engine->step();
    }
    engine->save_checkpoint(folder + "/frozen" + std::to_string(stage), {.tag = "all"});
    run.world->barrier();
    const auto saved = tensors_of(folder + "/frozen" + std::to_string(stage), "all");
    same(saved.at("parameter/fused").size(0), 2 * kHidden, "rows of the frozen tensor in the checkpoint");
    const auto file = gannet::load_safetensors(folder + "/whole" + std::to_string(stage) + ".safetensors");
    for (const auto& [name, tensor] : file)
      if (name == "fused") expect(saved.at("parameter/fused").equal(tensor), "the frozen tensor is saved whole");
  }
}
TEST(Split, WeightsAreWrittenWholeAndLoadedByBoxes) {
  const TemporaryFolder folder;
  expect_all_succeed(run_ranks("weights_of_split", 4, {.environment = {{"TENSOR", "2"}, {"FOLDER", folder.string()}}}));
}

// Boxes that do not make up a tensor are refused on every rank, with the parameter and the
// elements.
RANK_BODY(refused_splits) {
  const auto world = gannet::init_distributed();
  const auto initialized = [&](const std::function<void(torch::nn::Module&)>& declare, int64_t degree, const Dict& with = {}) {
    return message_of([&] {
      auto net = make_net(1);
      declare(*net);
      Dict config = split_config(1);
      if (degree > 1) config["gannet"] = Dict{{"mesh", Dict{{"tensor", degree}}}};
      for (const auto& [key, value] : with.entries()) config[key] = value;
      gannet::initialize(net, {.config = config});
    });
  };
  const auto rows = [&](int64_t total, int64_t first) {
    return [=](torch::nn::Module& net) {
      gannet::declare_split(net.named_parameters()["first.weight"], {{total, 8}, {{{first, 0}, {16, 8}}}});
    };
  };
  const int64_t rank = world->rank() % 2;
  contains(initialized(rows(32, 0), 2),
           "parameter 'first.weight' is split among the 2 ranks of the mesh's axis tensor, but it has "
           "elements [0:16, 0:8] twice");
  contains(initialized(rows(40, 16 * rank), 2), "misses elements [32:40, 0:8] of [40, 8]");
  contains(initialized(rows(32, 0), 1), "parameter 'first.weight' is split among the 1 rank");
  contains(initialized([&](torch::nn::Module& net) { rank == 0 ? rows(32, 0)(net) : void(); }, 2),
           "has declared a split of parameter 'first.weight', and rank ");
  contains(initialized([&](torch::nn::Module& net) { rows(32 + 8 * rank, 16 * rank)(net); }, 2), "shape");
  contains(initialized(rows(32, 16 * rank), 2,
                       {{"optimizer", Dict{{"type", "Whole"}, {"params", Dict{{"lr", 0.1}}}}},
                        {"plugins", Dict{{"path", gannet::List{Value(WHOLE_PLUGIN)}}}}}),
           "needs whole tensors, and each rank has a part of 'first.weight'");
  // A tensor that is whole on one rank is not split.
  same(initialized([&](torch::nn::Module& net) { rows(16, 0)(net); }, 1), std::string(), "a box that is the whole tensor");
}
TEST(Split, BoxesThatDoNotMakeUpTheTensorAreRefused) { expect_all_succeed(run_ranks("refused_splits", 4)); }

RANK_BODY(refused_declarations) {
  const at::Tensor weight = torch::zeros({4, 6});
  const auto declared = [&](const TensorSplit& split) { return message_of([&] { gannet::declare_split(weight, split); }); };
  contains(declared({{8, 6}, {{{0, 0}, {3, 6}}}}), "boxes that make up [3, 6]");
  contains(declared({{8, 6}, {{{6, 0}, {4, 6}}}}), "dimension 0");
  contains(declared({{8, 6}, {}}), "has no boxes");
  contains(message_of([&] { gannet::split_evenly({8, 6}, 2, 0, 2); }), "no such dimension");
  contains(message_of([&] { gannet::split_evenly({8, 6}, 0, 2, 2); }), "no such rank");
  contains(message_of([&] { gannet::split_evenly({8, 6}, 0, 0, 9); }), "leave a rank without any");
  contains(message_of([&] { gannet::split_evenly({8, 6}, 0, 0, 2, 3); }), "tensors of equal size");
  // Parts of 15 for 2 ranks, in each of two fused tensors.
  const TensorSplit second = gannet::split_evenly({30, 6}, 0, 1, 2, 2);
  expect(second.boxes == std::vector<Box>{{{8, 0}, {7, 6}}, {{23, 0}, {7, 6}}}, "the second rank's boxes");
  same(second.local_shape()[0], int64_t{14}, "its rows");
  auto net = make_net(1);
  auto engine = gannet::initialize(net, {.config = split_config(0)}).engine;
  contains(message_of([&] { gannet::declare_split(net->first->weight, {{32, 8}, {{{0, 0}, {16, 8}}}}); }), "is trained by");
}
TEST(Split, DeclarationsAreChecked) { expect_all_succeed(run_ranks("refused_declarations", 1)); }

}  // namespace
