// Programs with a mixture of experts: ranks without tokens for an expert, experts thawed later and
// in groups of their own, several engines, stages of a pipeline, files of weights, a non-finite
// gradient, a rank that declares something else.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "mesh/expert_model.h"
#include "plugin/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;
using ranks::same;

const std::map<std::string, std::string> kPairs{{"EXPERT", "2"}};

// Loss and norm of each step on 4 ranks beside those on one.
void expect_as_whole(const char* body, std::map<std::string, std::string> environment, size_t count) {
  environment["EXPERT"] = "1";
  const auto whole = run_ranks(body, 1, {.environment = environment});
  environment["EXPERT"] = "2";
  const auto cut = run_ranks(body, 4, {.environment = environment});
  expect_all_succeed(whole);
  expect_all_succeed(cut);
  const auto expected = figures(whole), found = figures(cut);
  ASSERT_EQ(expected.size(), count);
  ASSERT_EQ(found.size(), count);
  for (size_t i = 0; i < count; ++i) EXPECT_NEAR(found[i], expected[i], 4e-6 * std::abs(expected[i])) << i;
}

// Only some ranks have tokens for their expert.
struct IdleImpl : torch::nn::Module {
  explicit IdleImpl(uint32_t side) {
    up = register_parameter("up", torch::ones({1, 40}));
    down = register_parameter("down", torch::ones({1, 40}));
    bias = register_parameter("bias", torch::ones({5}));
    for (const at::Tensor& weight : {up, down}) gannet::declare_expert(weight, gannet::split_evenly({2, 40}, 0, side, 2));
  }
  at::Tensor forward(double factor) { return factor == 0 ? bias.sum() : bias.sum() + (up * factor).sum(); }
  at::Tensor up, down, bias;
};
RANK_BODY(idle_experts) {
  const auto world = gannet::init_distributed();
  for (const int64_t stage : {0, 1, 2})
    for (const char* tier : {"", "cpu"}) {
      if (stage == 0 && *tier) continue;
      Dict config = split_config(stage, tier);
      config["gradient_clipping"] = 0.0;
      config["gannet"] = Dict{{"mesh", Dict{{"expert", 2}}}, {"fingerprint_every", 1}};
      auto model = std::make_shared<IdleImpl>(world->rank() % 2);
      auto engine = gannet::initialize(model, {.config = config}).engine;
      for (int step = 0; step < 2; ++step) {
        for (int micro = 0; micro < 2; ++micro) {
          // Ranks 0 and 2 hold one expert: rank 0 never has tokens for it, rank 2 only in the first
          // micro-batch.
          const double factor = world->rank() == 0 || (world->rank() == 2 && micro == 1) ? 0 : world->rank();
          engine->backward(engine->forward(factor));
          if (micro == 0) engine->step();
        }
        const double expected = world->rank() % 2 == 0 ? 2.0 / 4 / 2 : (1.0 + 3.0) / 4;
        expect(engine->full_gradient("up").eq(expected).all().item<bool>(), "the sum over the ranks that had tokens");
        expect(engine->full_gradient("down").eq(0).all().item<bool>(), "of an expert that nobody has used");
        engine->step();
      }
    }
}
TEST(ExpertPrograms, ARankWithoutTokensCountsAsZeros) {
  expect_all_succeed(run_ranks("idle_experts", 4, {.environment = kPairs}));
}

RANK_BODY(thawed_experts) {
  MixtureRun run(split_config(std::atoi(variable("STAGE").c_str())), {.trains_up = false});
  run.train(0, 4);
  run.model->up.set_requires_grad(true);
  run.train(4, 4);
  run.model->down.set_requires_grad(false);
  run.train(8, 4);
}
TEST(ExpertPrograms, ExpertsJoinAndFreezeLater) {
  for (const auto& [stage, count] : {std::pair{"0", "4"}, {"2", "3"}, {"3", "4"}, {"3", "3"}})
    expect_as_whole("thawed_experts", {{"STAGE", stage}, {"EXPERTS", count}}, 6u * 2);
}

RANK_BODY(groups_of_experts) {
  for (const int64_t stage : {0, 1, 3}) {
    MixtureRun run(split_config(stage), {.groups = {{.overrides = {{"lr", 0.003}, {"weight_decay", 0.0}}, .match = {"up"}},
                                                    {.overrides = {{"lr", 0.03}}, .match = {"down", "gate.*"}}}});
    run.train(0, 8);
  }
}
TEST(ExpertPrograms, ExpertsTrainInSeveralGroups) { expect_as_whole("groups_of_experts", {{"EXPERTS", "3"}}, 3u * 4 * 2); }

// Two engines with experts in turn: each behaves as if it were the only one.
RANK_BODY(engines_of_experts) {
  for (const int64_t stage : {1, 3}) {
    MixtureRun alone(split_config(stage), /*seed=*/1);
    alone.train(0, 4);
    MixtureRun first(split_config(stage), /*seed=*/1), second(split_config(stage), /*seed=*/2);
    for (int64_t i = 0; i < 4; ++i) {
      second.train(i, 1);
      first.train(i, 1);
    }
    const auto expected = alone.engine->fp32_parameters(), found = first.engine->fp32_parameters();
    for (size_t i = 0; i < expected.size(); ++i)
      expect(found.at(i).second.equal(expected[i].second), "beside another engine: " + expected[i].first);
  }
}
TEST(ExpertPrograms, EnginesBesideEachOtherKeepTheirs) {
  expect_all_succeed(run_ranks("engines_of_experts", 4, {.environment = {{"EXPERT", "2"}, {"EXPERTS", "3"}}}));
}

// Files hold whole tensors; a module takes its experts of them.
RANK_BODY(files_of_experts) {
  const std::string folder = variable("FOLDER");
  for (const int64_t stage : {0, 2, 3}) {
    Dict config = split_config(stage);
    config["bf16"] = Dict{{"enabled", true}};
    if (stage == 3) {
      Dict zero{{"stage", 3}, {"stage3_gather_16bit_weights_on_model_save", true}, {"stage3_param_persistence_threshold", 0}};
      config["zero_optimization"] = zero;
    }
    MixtureRun run(config);
    run.train(0, 4);
    const std::string name = std::to_string(stage);
    expect(run.engine->save_16bit_model(folder, name + ".safetensors"), "written");
    run.engine->save_fp32_model(folder, name + "_fp32.safetensors");
    run.world->barrier();
    const auto file = gannet::load_safetensors(folder + "/" + name + ".safetensors"),
               masters = gannet::load_safetensors(folder + "/" + name + "_fp32.safetensors");
    same(file.size(), masters.size(), "tensors");
    for (const auto& [key, tensor] : masters)
      for (const auto& [other, rounded] : file)
        if (key == other) expect(rounded.equal(tensor.to(torch::kBFloat16)), "the rounded masters of " + key);
    torch::manual_seed(9);
    MixtureImpl taken(*run.experts, 0);
    gannet::load_weights(taken, folder + "/" + name + "_fp32.safetensors");
    expect(taken.up.equal(run.engine->full_fp32_parameter("up")), "this rank's experts of the file");
    // And in an engine that has trained: a load, written in place.
    const at::Tensor before = run.engine->full_fp32_parameter("up").clone();
    run.train(4, 2);
    expect(!run.engine->full_fp32_parameter("up").equal(before), "trained further");
    run.engine->set_full_fp32_parameter("up", taken.up);
    expect(run.engine->full_fp32_parameter("up").equal(before), "set back");
    run.train(6, 2);
  }
}
TEST(ExpertPrograms, FilesHoldWholeTensors) {
  const TemporaryFolder folder;
  expect_all_succeed(
      run_ranks("files_of_experts", 4, {.environment = {{"EXPERT", "2"}, {"EXPERTS", "3"}, {"FOLDER", folder.string()}}}));
}

// One rank's experts get a gradient that is no number: no rank updates, and the next step is fine.
RANK_BODY(overflowing_experts) {
  for (const int64_t stage : {0, 1, 2, 3}) {
    Dict config = split_config(stage);
    config["gradient_accumulation_steps"] = 1;
    config["fp16"] = Dict{{"enabled", true}, {"initial_scale_power", 4}};
    MixtureRun run(config);
    run.train(0, 1);
    const at::Tensor before = run.engine->full_fp32_parameter("up").clone();
    run.backward(1);
    at::Tensor gradient = run.engine->full_gradient("up");
    if (run.world->rank() % 2 == 1) gradient.flatten()[3] = std::numeric_limits<float>::infinity();
    run.engine->set_full_gradient("up", gradient);
    expect(!run.engine->step().applied, "skipped on every rank");
    expect(run.engine->full_fp32_parameter("up").equal(before), "and nothing has changed");
    run.train(2, 1);
    expect(run.engine->was_step_applied(), "the next one is applied");
  }
}
TEST(ExpertPrograms, AnOverflowOfOneRanksExpertsIsSkippedByAll) {
  expect_all_succeed(run_ranks("overflowing_experts", 4, {.environment = {{"EXPERT", "2"}, {"EXPERTS", "3"}}}));
}

// A stage of a pipeline with experts of its own.
struct StageOfExpertsImpl : torch::nn::Module {
  StageOfExpertsImpl(uint32_t stage, gannet::ProcessGroup& experts) {
    layer = register_module("stage" + std::to_string(stage), std::make_shared<MixtureImpl>(experts, 0));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) { return layer->forward(x, y); }
  std::shared_ptr<MixtureImpl> layer;
};
RANK_BODY(stages_of_experts) {
  torch::set_num_threads(1);
  const auto world = gannet::init_distributed();
  const bool is_mesh = world->size() == 4;
  const uint32_t stage = is_mesh ? world->rank() / 2 : std::atoi(variable("ONLY").c_str());
  const auto lower = world->subset({0, 1}), upper = is_mesh ? world->subset({2, 3}) : nullptr;
  gannet::ProcessGroup& experts = stage == 0 || !is_mesh ? *lower : *upper;
  for (const int64_t zero : {0, 2}) {
    const auto make = [&](int64_t seed) {
      Dict config = split_config(zero);
      config["gradient_accumulation_steps"] = 1;
      Dict mesh{{"expert", 2}};
      if (is_mesh) mesh["pipe"] = 2;
      config["gannet"] = Dict{{"mesh", mesh}, {"fingerprint_every", 1}};
      config["gradient_clipping"] = 0.0;
      torch::manual_seed(seed + stage);
      return gannet::initialize(std::make_shared<StageOfExpertsImpl>(stage, experts), {.config = config}).engine;
    };
    auto engine = make(1);
    auto [x, y] = make_batch(engine->rank(), 4);
    for (int i = 0; i < 2; ++i) {
      engine->backward(engine->forward(x, y));
      engine->step();
    }
    if (world->rank() == 0) std::cout << std::setprecision(17) << "figure: " << *engine->get_global_grad_norm() << std::endl;
    if (!is_mesh) continue;
    const std::string folder = variable("FOLDER") + "/" + std::to_string(zero);
    engine->save_checkpoint(folder, {.tag = "all"});
    world->barrier();
    same(tensors_of(folder, "all").at("parameter/stage1.up").size(0), kExperts, "experts of the second stage");
    auto other = make(7);
    other->load_checkpoint(folder);
    const auto expected = engine->fp32_parameters(), found = other->fp32_parameters();
    for (size_t i = 0; i < expected.size(); ++i)
      expect(found.at(i).second.equal(expected[i].second), "loaded: " + expected[i].first);
  }
}
TEST(ExpertPrograms, StagesOfAPipelineHaveExpertsOfTheirOwn) {
  const TemporaryFolder folder;
  std::vector<double> squares(2);
  for (const char* only : {"0", "1"}) {
    const auto outcomes = run_ranks("stages_of_experts", 2, {.environment = {{"EXPERT", "2"}, {"ONLY", only}}});
    expect_all_succeed(outcomes);
    const auto norms = figures(outcomes);
    ASSERT_EQ(norms.size(), 2u);
    for (size_t i = 0; i < 2; ++i) squares[i] += norms[i] * norms[i];
  }
  const auto outcomes = run_ranks("stages_of_experts", 4, {.environment = {{"EXPERT", "2"}, {"FOLDER", folder.string()}}});
  expect_all_succeed(outcomes);
  const auto norms = figures(outcomes);
  ASSERT_EQ(norms.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(norms[i], std::sqrt(squares[i]), 1e-12 * norms[i]);
}

// One rank of four declares something else: every rank gets an error, none waits.
RANK_BODY(ranks_declare_differently) {
  const auto world = gannet::init_distributed();
  const int64_t side = world->rank() % 2;
  const bool is_other = world->rank() == static_cast<uint32_t>(std::atoi(variable("OTHER").c_str()));
  const auto initialized = [&](const std::function<void(torch::nn::Module&)>& declare, const Dict& mesh) {
    return message_of([&] {
      auto net = make_net(1);
      declare(*net);
      Dict config = split_config(1);
      config["gannet"] = Dict{{"mesh", mesh}};
      gannet::initialize(net, {.config = config});
    });
  };
  const auto declare = [&](torch::nn::Module& net, const char* name, double divisor = 0) {
    const at::Tensor weight = net.named_parameters()[name];
    std::vector<int64_t> whole = weight.sizes().vec(), first(whole.size(), 0);
    first[0] = whole[0] * side;
    const gannet::Box box{first, whole};
    whole[0] *= 2;
    gannet::declare_expert(weight, {whole, {box}}, divisor);
  };
  for (const bool has_axis : {true, false}) {
    const Dict mesh = has_axis ? Dict{{"expert", 2}} : Dict{};
    contains(initialized([&](torch::nn::Module& net) { is_other ? void() : declare(net, "first.weight"); }, mesh),
             "first.weight");
    contains(initialized([&](torch::nn::Module& net) { is_other ? declare(net, "first.weight") : void(); }, mesh),
             "first.weight");
    contains(initialized(
                 [&](torch::nn::Module& net) {
                   declare(net, "first.weight");
                   if (!is_other) declare(net, "second.weight");
                 },
                 mesh),
             has_axis ? "second.weight" : "weight");
  }
  contains(initialized([&](torch::nn::Module& net) { declare(net, "first.weight", is_other ? 2 : 0); }, Dict{{"expert", 2}}),
           "its gradient times");
  contains(initialized(
               [&](torch::nn::Module& net) {
                 if (is_other)
                   gannet::declare_split(net.named_parameters()["first.weight"], {{32, 8}, {{{16 * side, 0}, {16, 8}}}});
                 else
                   declare(net, "first.weight");
               },
               Dict{{"expert", 2}}),
           "first.weight");
  contains(initialized([&](torch::nn::Module& net) { declare(net, "first.weight"); }, Dict{{"expert", is_other ? 4 : 2}}),
           "ranks");
}
TEST(ExpertPrograms, ARankThatDeclaresSomethingElseIsAnErrorOnAll) {
  for (const char* other : {"0", "3"})
    expect_all_succeed(run_ranks("ranks_declare_differently", 4, {.environment = {{"EXPERT", "2"}, {"OTHER", other}}}));
}

}  // namespace
