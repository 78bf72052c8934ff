// Uses of experts besides training: divisors, values by name and under guards, frozen experts, the
// program's own meshes; and refused uses.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <map>

#include "mesh/expert_model.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::MeshShape;
using gannet::Value;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;
using ranks::same;

const std::map<std::string, std::string> kTwo{{"EXPERT", "2"}};

// Two ranks hold the same experts, of four along data: divided by 2 their gradient is twice what it is divided by 4, and nothing
// else changes. To the bit, since it is a power of two.
RANK_BODY(divides_experts) {
  for (const int64_t stage : {0, 1, 2, 3}) {
    MixtureRun by_data(split_config(stage)), by_holders(split_config(stage), {.divisor = 2});
    for (MixtureRun* run : {&by_data, &by_holders}) {
      run->backward(0);
      run->engine->step();
      run->backward(1);
    }
    for (const std::string name : {"up", "down"})
      expect(by_holders.engine->full_gradient(name).equal(2 * by_data.engine->full_gradient(name)), "twice: " + name);
    expect(by_holders.engine->full_gradient("bias").equal(by_data.engine->full_gradient("bias")), "bias is no expert");
    double squares = 0;
    for (const std::string& name : by_holders.engine->parameter_names()) {
      const double own = by_holders.engine->full_gradient(name).to(torch::kDouble).square().sum().item<double>();
      // A mean over the 4 ranks is half the sum over the 2 experts' ranks, which each hold one of the halves.
      squares += name == "up" || name == "down" ? 2 * by_holders.engine->mean(own) : own;
    }
    by_holders.engine->step();
    const double norm = *by_holders.engine->get_global_grad_norm();
    expect(std::abs(norm - std::sqrt(squares)) < 1e-6 * norm, "the norm counts each expert once");
  }
}
TEST(Experts, TheirGradientsHaveADivisorOfTheirOwn) {
  expect_all_succeed(run_ranks("divides_experts", 4, {.environment = kTwo}));
}

RANK_BODY(values_of_experts) {
  for (const int64_t stage : {0, 1, 3}) {
    MixtureRun run(split_config(stage));
    run.train(0, 2);
    const auto rank = run.world->rank();
    const at::Tensor before = run.engine->full_fp32_parameter("up").clone();
    {
      gannet::zero::GatheredParameters guard(*run.engine, {run.model->up}, {.write_from = 0});
      const at::NoGradGuard no_grad;
      if (rank == 0) run.model->up.fill_(0.25);
    }
    const at::Tensor after = run.engine->full_fp32_parameter("up");
    same(after.sizes().vec(), std::vector<int64_t>{2, 10, 12}, "this rank's experts");
    expect(rank % 2 == 0 ? after.eq(0.25).all().item<bool>() : after.equal(before), "rank 0 has written its own experts");
    run.engine->set_full_fp32_parameter("down", torch::full({2, 4, 10}, 1.0 + rank % 2));
    expect(run.engine->full_fp32_parameter("down").eq(1.0 + rank % 2).all().item<bool>(), "each sets its own experts");
    run.train(2, 2);
  }
}
TEST(Experts, ValuesAreThoseOfThisRanksExperts) { expect_all_succeed(run_ranks("values_of_experts", 4, {.environment = kTwo})); }

// Frozen experts are this rank's as well: placed, gathered and saved so.
RANK_BODY(frozen_experts) {
  for (const int64_t stage : {0, 3}) {
    MixtureRun run(split_config(stage), {.trains_up = false});
    torch::manual_seed(1);
    const MixtureImpl expected(*run.experts, 0);
    run.train(0, 4);
    const std::string folder = variable("FOLDER") + "/" + std::to_string(stage);
    run.engine->save_checkpoint(folder, {.tag = "all"});
    run.world->barrier();
    const at::Tensor saved = tensors_of(folder, "all").at("parameter/up");
    same(saved.size(0), kExperts, "experts in the checkpoint");
    expect(saved.narrow(0, run.experts->rank() * 2, 2).equal(expected.up), "the frozen experts are as they were");
  }
}
TEST(Experts, FrozenOnesKeepTheirValues) {
  const TemporaryFolder folder;
  expect_all_succeed(run_ranks("frozen_experts", 4, {.environment = {{"EXPERT", "2"}, {"FOLDER", folder.string()}}}));
}

RANK_BODY(experts_under_init) {
  MixtureRun plain(split_config(3)), under_init(split_config(3), {.under_init = true});
  for (MixtureRun* run : {&plain, &under_init}) run->train(0, 4);
  const auto expected = plain.engine->fp32_parameters(), found = under_init.engine->fp32_parameters();
  for (size_t i = 0; i < expected.size(); ++i)
    expect(found.at(i).second.equal(expected[i].second), "built under Init: " + expected[i].first);
}
TEST(Experts, ZeroInitLeavesThemToInitialize) { expect_all_succeed(run_ranks("experts_under_init", 4, {.environment = kTwo})); }

// A rank writes other values into its experts than the rank that holds the same ones.
RANK_BODY(differing_experts) {
  MixtureRun run(split_config(0));
  run.train(0, 2);
  {
    const at::NoGradGuard no_grad;
    if (run.world->rank() == 3) run.model->up.add_(1);
  }
  const std::string sentence = message_of([&] { run.train(2, 2); });
  contains(sentence, "different values of 'up'");
  contains(sentence, "rank 3 and rank 1");
}
TEST(Experts, CopiesThatDifferAreFound) { expect_all_succeed(run_ranks("differing_experts", 4, {.environment = kTwo})); }

// A mesh of the program's: the ranks with the same experts side by side, as use_data_before_expert_parallelism has them. And its
// optimizer, one of LibTorch's, which trains at stage 2 as it does at stage 0.
RANK_BODY(meshes_of_experts) {
  const MeshShape mesh({{"expert", 2}, {"expert_data", 2}});
  auto adam = [](const torch::nn::Module& module) -> std::shared_ptr<torch::optim::Optimizer> {
    return std::make_shared<torch::optim::Adam>(module.parameters(), torch::optim::AdamOptions(1e-2).eps(1e-6));
  };
  MixtureRun replicated(split_config(0), {.optimizer = adam, .mesh = mesh}),
      sharded(split_config(2), {.optimizer = adam, .mesh = mesh});
  const auto rank = replicated.world->rank();
  same(replicated.experts->links().host.ranks(), std::vector<uint32_t>{rank % 2, rank % 2 + 2}, "the other experts");
  for (MixtureRun* run : {&replicated, &sharded}) run->train(0, 4);
  const auto expected = replicated.engine->fp32_parameters(), found = sharded.engine->fp32_parameters();
  for (size_t i = 0; i < expected.size(); ++i)
    expect(difference(found.at(i).second, expected[i].second) < 2e-6, "stage 2: " + expected[i].first);
}
TEST(Experts, AProgramBringsItsMeshAndOptimizer) { expect_all_succeed(run_ranks("meshes_of_experts", 4, {.environment = kTwo})); }

Dict with(Dict config, const char* key, Value value) {
  config[key] = std::move(value);
  return config;
}

RANK_BODY(refused_experts) {
  const auto world = gannet::init_distributed();
  const int64_t side = world->rank() % 2;
  const auto initialized = [&](const std::function<void(torch::nn::Module&)>& declare, const Dict& mesh, Dict config) {
    return message_of([&] {
      auto net = make_net(1);
      declare(*net);
      config["gannet"] = Dict{{"mesh", mesh}};
      gannet::initialize(net, {.config = config});
    });
  };
  const auto rows = [](int64_t total, int64_t first, double divisor = 0) {
    return [=](torch::nn::Module& net) {
      gannet::declare_expert(net.named_parameters()["first.weight"], {{total, 8}, {{{first, 0}, {16, 8}}}}, divisor);
    };
  };
  const Dict two{{"expert", 2}}, both{{"expert", 2}, {"tensor", 2}};
  contains(initialized(rows(32, 16 * side), {{"expert", 3}}, split_config(1)),
           "3 ranks along the axis 'expert' do not divide the 4 along 'data'");
  contains(initialized(rows(32, 16 * side), {}, split_config(1)), "is split among the 1 rank of the mesh's axis expert, but it");
  contains(initialized(rows(32, 0), two, split_config(1)), "the mesh's axis expert, but it has elements [0:16, 0:8] twice");
  contains(initialized(rows(40, 16 * side), two, split_config(1)), "misses elements [32:40, 0:8] of [40, 8]");
  contains(initialized([&](torch::nn::Module& net) { side == 0 ? rows(32, 0)(net) : void(); }, two, split_config(1)),
           "along the axis expert, rank ");
  contains(initialized(rows(32, 16 * (world->rank() / 2)), two, split_config(1)), "axis expert, but it");
  const auto plugins = Dict{{"path", gannet::List{Value(WHOLE_PLUGIN)}}};
  contains(initialized(rows(32, 16 * side), two,
                       with(with(split_config(1), "optimizer", Dict{{"type", "Whole"}, {"params", Dict{{"lr", 0.1}}}}), "plugins",
                            plugins)),
           "needs whole tensors, and each rank has a part of 'first.weight'");
  contains(initialized(rows(32, 16 * side), two,
                       with(split_config(0), "optimizer",
                            Dict{{"type", "OneBitAdam"}, {"params", Dict{{"lr", 0.1}, {"freeze_step", 10}}}})),
           "expert parameter 'first.weight' is averaged over other ranks");
  contains(message_of([&] {
             auto net = make_net(1);
             rows(32, 16 * side)(*net);
             struct Own : torch::optim::Adam {
               using Adam::Adam;
             };
             Dict config = split_config(0);
             config.erase("optimizer");
             config["gannet"] = Dict{{"mesh", two}};
             gannet::initialize(
                 net, {.config = config, .optimizer = std::make_shared<Own>(net->parameters(), torch::optim::AdamOptions(1e-2))});
           }),
           "whose states cannot be cut by experts");
  // One rank's mistake is reported on all ranks.
  contains(initialized(rows(32, world->rank() == 3 ? 0 : 16 * side), two, split_config(1)), "first.weight");
  // Along tensor they are replicas.
  contains(initialized(rows(32, 16 * (world->rank() / 2 ^ world->rank() % 2)), both, split_config(1)), "the parameters' splits");
  for (const MeshShape& mesh : {MeshShape({{"data", 2}, {"expert", 2}}), MeshShape({{"expert", 2}, {"tensor", 2}})})
    contains(message_of([&] { gannet::initialize(make_net(1), {.config = split_config(1), .mesh = mesh}); }),
             "not expert and expert_data in place of data");
}
TEST(Experts, WhatCannotBeIsRefused) { expect_all_succeed(run_ranks("refused_experts", 4)); }

RANK_BODY(refused_expert_declarations) {
  const at::Tensor weight = torch::zeros({4, 6});
  contains(message_of([&] { gannet::declare_expert(weight, {{8, 6}, {{{0, 0}, {3, 6}}}}); }), "boxes that make up [3, 6]");
  contains(message_of([&] { gannet::declare_expert(weight, {{8, 6}, {{{0, 0}, {4, 6}}}}, -1); }), "cannot be divided by -1");
  auto net = make_net(1);
  gannet::declare_expert(net->first->weight, {{16, 8}, {{{0, 0}, {16, 8}}}}, 2);
  contains(message_of([&] { gannet::initialize(net, {.config = split_config(0)}); }), "one rank along data sums nothing");
  gannet::declare_expert(net->first->weight, {{16, 8}, {{{0, 0}, {16, 8}}}}, 1);
  auto engine = gannet::initialize(net, {.config = split_config(0)}).engine;
  contains(message_of([&] { gannet::declare_expert(net->first->weight, {{16, 8}, {{{0, 0}, {16, 8}}}}); }), "is trained by");
}
TEST(Experts, DeclarationsAreChecked) { expect_all_succeed(run_ranks("refused_expert_declarations", 1)); }

}  // namespace
