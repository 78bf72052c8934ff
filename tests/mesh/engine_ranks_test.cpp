// Engines on a mesh: a run of two axes is the run of one, groups beside each other keep their guarantees, and what does not fit
// is an error on every rank.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "control/world.h"
#include "plugin/support.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::Error;
using gannet::MeshShape;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;
using ranks::same;

// The figures that rank 0 printed.
std::vector<std::string> printed_figures(const std::vector<ranks::Outcome>& outcomes) {
  std::vector<std::string> lines;
  std::istringstream output(outcomes.at(0).output);
  for (std::string line; std::getline(output, line);)
    if (line.rfind("figure: ", 0) == 0) lines.push_back(line);
  return lines;
}

Dict config_of(int64_t stage) {
  Dict config = config_with({{"gradient_clipping", 0.5}, {"gradient_accumulation_steps", 2}});
  config["zero_optimization"] = Dict{{"stage", stage}, {"reduce_bucket_size", 300}, {"stage3_param_persistence_threshold", 40}};
  const std::string tensor = variable("TENSOR");
  if (!tensor.empty()) config["gannet"] = Dict{{"mesh", Dict{{"tensor", std::atoi(tensor.c_str())}}}};
  return config;
}

template <class Engine>
void train_on_mesh(Engine& engine, int64_t first, int64_t micro_batches) {
  for (int64_t i = first; i < first + micro_batches; ++i) {
    auto [x, y] = make_batch(i * engine.world_size() + engine.rank(), 4);
    const at::Tensor loss = engine.forward(x, y);
    engine.backward(loss);
    if (!engine.step().boundary) continue;
    std::cout << "figure: loss " << std::hexfloat << loss.template item<float>() << " norm " << *engine.get_global_grad_norm()
              << "\n";
  }
}

template <class Engine>
void print_parameters(Engine& engine) {
  double sum = 0, place = 0;
  for (const auto& [name, value] : engine.fp32_parameters()) sum += value.norm().template item<double>() * ++place;
  std::cout << "figure: parameters " << std::hexfloat << sum << std::endl;
}

RANK_BODY(trains_on_a_mesh) {
  torch::set_num_threads(1);
  for (const int64_t stage : {0, 1, 2, 3}) {
    auto engine = gannet::initialize(make_net(), {.config = config_of(stage)}).engine;
    train_on_mesh(*engine, 0, 6);
    print_parameters(*engine);
    same(engine->world_size(), 2u, "ranks with data of their own");
  }
}
TEST(Mesh, TwoAxesOfWhichOneReplicatesTrainToTheBitsOfOne) {
  const auto one = run_ranks("trains_on_a_mesh", 2), two = run_ranks("trains_on_a_mesh", 4, {.environment = {{"TENSOR", "2"}}});
  expect_all_succeed(one);
  expect_all_succeed(two);
  EXPECT_EQ(printed_figures(one).size(), 4u * 4u);
  EXPECT_EQ(printed_figures(one), printed_figures(two));
}

RANK_BODY(saves_on_a_mesh) {
  torch::set_num_threads(1);
  const std::string folder = variable("FOLDER");
  auto engine = gannet::initialize(make_net(), {.config = config_of(std::atoi(variable("STAGE").c_str()))}).engine;
  if (!variable("LOAD").empty()) {
    engine->load_checkpoint(folder + "/" + variable("LOAD"));
  } else {
    train_on_mesh(*engine, 0, 4);
  }
  print_parameters(*engine);
  if (!variable("SAVE").empty()) engine->save_checkpoint(folder + "/" + variable("SAVE"));
}
TEST(Mesh, ACheckpointOfTwoAxesLoadsAtOthersAndBack) {
  const TemporaryFolder folder;
  for (const char* stage : {"1", "3"}) {
    std::vector<std::string> expected;
    std::string from;
    int number = 0;
    std::vector<std::pair<int, std::string>> meshes = {{4, "2"}, {1, ""}, {4, "2"}};
    if (stage == std::string("3") || ranks::is_full()) meshes = {{4, "2"}, {1, ""}, {4, ""}, {2, "2"}, {4, "2"}};
    for (const auto& [count, tensor] : meshes) {
      const std::string to = std::string("stage") + stage + "_" + std::to_string(number++);
      const auto outcomes = run_ranks(
          "saves_on_a_mesh", count,
          {.environment = {{"TENSOR", tensor}, {"STAGE", stage}, {"FOLDER", folder.string()}, {"LOAD", from}, {"SAVE", to}}});
      expect_all_succeed(outcomes);
      auto seen = printed_figures(outcomes);
      ASSERT_FALSE(seen.empty());
      if (from.empty()) expected = {seen.back()};
      EXPECT_EQ(std::vector{seen.back()}, expected) << count << " ranks, tensor " << tensor;
      from = to;
    }
  }
}

// Replicas are the program's to make: what differs is named before the first step, at every stage.
RANK_BODY(replicas_that_differ) {
  const auto world = gannet::init_distributed();
  for (const int64_t stage : {0, 3}) {
    Dict config = config_of(stage);
    config["zero_optimization"] = Dict{{"stage", stage}, {"stage3_param_persistence_threshold", 0}};
    try {
      gannet::initialize(make_net(world->rank() % 2 == 0 ? 1 : 2), {.config = config});
    } catch (const Error& error) {
      expect(std::string(error.what()).find("the ranks have different values of") != std::string::npos, error.what());
      continue;
    }
    throw std::runtime_error("replicas of other values were taken");
  }
}
TEST(Mesh, ReplicasThatDifferAreNamedAtInitialize) {
  expect_all_succeed(run_ranks("replicas_that_differ", 4, {.environment = {{"TENSOR", "2"}}}));
}

// A stage of a pipeline that the program drives itself, under the name that it has in the whole model.
struct StageImpl : torch::nn::Module {
  StageImpl(const std::string& name, std::shared_ptr<NetImpl> layers) : net(register_module(name, std::move(layers))) {}
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& y) { return net->forward(x, y); }
  std::shared_ptr<NetImpl> net;
};

// Other parameters on each stage, one norm over all.
RANK_BODY(stages_have_parameters_of_their_own) {
  torch::set_num_threads(1);
  const auto world = gannet::init_distributed();
  const bool is_mesh = !variable("PIPE").empty();
  const uint32_t stage = is_mesh ? world->rank() / 2 : std::atoi(variable("ONLY").c_str());
  Dict config = config_with({});
  if (is_mesh) config["gannet"] = Dict{{"mesh", Dict{{"pipe", 2}}}};
  auto net = std::make_shared<StageImpl>("stage" + std::to_string(stage), stage == 0 ? make_net(1) : make_net(2, 24));
  auto engine = gannet::initialize(net, {.config = config}).engine;
  auto [x, y] = make_batch(engine->rank(), 4);
  engine->backward(engine->forward(x, y));
  engine->step();
  if (engine->rank() == 0) std::cout << "figure: " << std::hexfloat << *engine->get_global_grad_norm() << std::endl;
  if (!is_mesh) return;
  engine->save_fp32_model(variable("FOLDER"), "whole.safetensors");
  const auto whole = gannet::load_safetensors(variable("FOLDER") + "/whole.safetensors");
  const auto own = engine->fp32_parameters();
  same(whole.size(), 2 * own.size(), "tensors of both stages");
  for (const auto& [name, tensor] : own) expect(whole.contains(name) && whole.at(name).equal(tensor), name);
}
TEST(Mesh, TheNormAndTheSavedModelAreThoseOfAllStages) {
  const TemporaryFolder folder;
  double squares = 0;
  const auto norm_of = [](const std::vector<ranks::Outcome>& outcomes) {
    expect_all_succeed(outcomes);
    return std::stod(printed_figures(outcomes).at(0).substr(8));
  };
  for (const char* stage : {"0", "1"}) {
    const double norm = norm_of(run_ranks("stages_have_parameters_of_their_own", 2, {.environment = {{"ONLY", stage}}}));
    squares += norm * norm;
  }
  const double whole =
      norm_of(run_ranks("stages_have_parameters_of_their_own", 4, {.environment = {{"PIPE", "2"}, {"FOLDER", folder.string()}}}));
  EXPECT_NEAR(whole, std::sqrt(squares), 1e-12 * whole);
}

RANK_BODY(stages_with_equal_names) {
  gannet::init_distributed();
  Dict config = config_with({});
  config["gannet"] = Dict{{"mesh", Dict{{"pipe", 2}}}};
  contains(message_of([&] { gannet::initialize(make_net(1), {.config = config}); }),
           "pipeline stages 0 and 1 both have a parameter 'first.weight'");
}
TEST(Mesh, StagesWhoseParametersHaveEqualNamesAreRefused) { expect_all_succeed(run_ranks("stages_with_equal_names", 4)); }

// zero::Init shares a model out along the data axis: an engine on another mesh would take the shards for its own.
RANK_BODY(built_on_another_mesh) {
  torch::set_num_threads(1);
  const auto world = gannet::init_distributed();
  Dict config = config_of(3);
  for (const bool has_same_mesh : {false, true}) {
    const MeshShape mesh({{"data", 2}, {"tensor", 2}});
    std::shared_ptr<NetImpl> net;
    {
      gannet::zero::Init init({.config = config, .mesh = mesh});
      net = make_net(1);
    }
    if (has_same_mesh) {
      auto engine = gannet::initialize(net, {.config = config, .mesh = mesh}).engine;
      auto plain = gannet::initialize(make_net(1), {.config = config, .mesh = mesh}).engine;
      const auto expected = plain->fp32_parameters(), found = engine->fp32_parameters();
      for (size_t i = 0; i < expected.size(); ++i)
        expect(found.at(i).second.equal(expected[i].second), "built under zero::Init: " + expected[i].first);
    } else {
      contains(message_of([&] { gannet::initialize(net, {.config = config}); }), "another engine or zero::Init of this process");
    }
  }
}
TEST(Mesh, AModelBuiltOnAnotherMeshIsRefused) { expect_all_succeed(run_ranks("built_on_another_mesh", 4)); }

// Ranks {0, 2} train one model, {1, 3} another one, at their own pace.
RANK_BODY(beside_each_other) {
  torch::set_num_threads(1);
  const auto world = gannet::init_distributed();
  const std::string folder = variable("FOLDER");
  auto evens = world->subset({0, 2}), odds = world->subset({1, 3});
  const bool is_even = world->rank() % 2 == 0;
  const auto mine = is_even ? evens : odds;
  Dict config = config_with({{"zero_optimization", Dict{{"stage", is_even ? 2 : 3}}}});
  config["gannet"] = Dict{{"checkpoint", Dict{{"async", true}}}};
  const std::string saves = folder + (is_even ? "/evens" : "/odds");
  double expected = 0;
  {
    auto engine = gannet::initialize(make_net(is_even ? 1 : 2), {.config = config, .process_group = mine}).engine;
    for (int64_t step = 0; step < (is_even ? 6 : 3); ++step) {
      auto [x, y] = make_batch(step * 2 + engine->rank(), 4);
      engine->backward(engine->forward(x, y));
      engine->step();
      engine->save_checkpoint(saves);  // in the background, while the next step runs
    }
    engine->wait_for_checkpoint();
    for (const auto& [name, value] : engine->fp32_parameters()) expected += value.norm().item<double>();
  }
  auto engine = gannet::initialize(make_net(9), {.config = config, .process_group = mine}).engine;
  const auto receipt = engine->load_checkpoint(saves);
  same(receipt.global_steps, int64_t{is_even ? 6 : 3}, "the steps of the newest checkpoint");
  double found = 0;
  for (const auto& [name, value] : engine->fp32_parameters()) found += value.norm().item<double>();
  same(found, expected, "parameters");
  world->barrier();
}
TEST(Mesh, EnginesBesideEachOtherSaveInTheBackground) {
  const TemporaryFolder folder;
  expect_all_succeed(run_ranks("beside_each_other", 4, {.environment = {{"FOLDER", folder.string()}}}));
}

// And are compared and watched: a config that differs, a rank that dies.
RANK_BODY(a_subset_that_differs) {
  const auto world = gannet::init_distributed();
  auto evens = world->subset({0, 2}), odds = world->subset({1, 3});
  const Dict config = config_with({{"gradient_clipping", world->rank() == 3 ? 0.25 : 0.5}});
  try {
    gannet::initialize(make_net(), {.config = config, .process_group = world->rank() % 2 == 0 ? evens : odds});
    expect(world->rank() % 2 == 0, "the odd ranks differ");
  } catch (const Error& error) {
    expect(world->rank() % 2 == 1, std::string("an even rank was told ") + error.what());
    expect(std::string(error.what()).find("the ranks differ in the config") != std::string::npos &&
               std::string(error.what()).find("gradient_clipping") != std::string::npos,
           error.what());
  }
  world->barrier();
}
TEST(Mesh, EnginesOnASubsetCompareTheirConfigs) { expect_all_succeed(run_ranks("a_subset_that_differs", 4)); }

// The program's own groups.
struct Groups : gannet::Mpu {
  explicit Groups(uint32_t of, bool tiles = true) : rank(of), is_right(tiles) {}
  uint32_t get_model_parallel_rank() const override { return rank % 2; }
  uint32_t get_model_parallel_world_size() const override { return 2; }
  std::vector<uint32_t> get_model_parallel_group() const override { return {rank / 2 * 2, rank / 2 * 2 + 1}; }
  uint32_t get_data_parallel_rank() const override { return rank / 2; }
  uint32_t get_data_parallel_world_size() const override { return 2; }
  std::vector<uint32_t> get_data_parallel_group() const override {
    return is_right ? std::vector<uint32_t>{rank % 2, rank % 2 + 2} : std::vector<uint32_t>{rank / 2 * 2, rank / 2 * 2 + 1};
  }
  uint32_t rank;
  bool is_right;
};

RANK_BODY(wrong_meshes) {
  const auto world = gannet::init_distributed();
  const auto refused = [&](Dict gannet_block, std::optional<MeshShape> mesh, std::shared_ptr<const gannet::Mpu> mpu,
                           const std::vector<std::string>& texts, Dict more = {}) {
    Dict config = config_with({{"gannet", std::move(gannet_block)}});
    for (const auto& [key, value] : more.entries()) config[key] = value;
    try {
      gannet::initialize(make_net(), {.config = config, .mesh = mesh, .mpu = mpu});
    } catch (const Error& error) {
      for (const auto& text : texts)
        expect(std::string(error.what()).find(text) != std::string::npos, "'" + text + "' in: " + error.what());
      world->barrier();
      return;
    }
    throw std::runtime_error("was not refused: " + texts[0]);
  };
  refused({{"mesh", Dict{{"tensor", 3}}}}, {}, {}, {"a mesh of tensor 3 does not multiply to the 4 ranks"});
  refused({{"mesh", Dict{{"pipe", 2}}}}, {}, {}, {"gannet.mesh.pipe", "pipeline.stages"}, {{"pipeline", Dict{{"stages", 4}}}});
  refused({{"mesh", Dict{{"pipe", 2}}}}, MeshShape({{"pipe", 4}}), {}, {"gannet.mesh.pipe", "the program's mesh"});
  refused({}, MeshShape({{"data", 2}}), {}, {"has 2 ranks, and this engine has 4"});
  refused({}, MeshShape({{"sequence", 4}}), {}, {"has an axis 'sequence'"});
  refused({}, MeshShape({{"replicate", 2}, {"data", 2}}), {}, {"has an axis 'replicate'"});
  refused({}, MeshShape({{"data", 4}}), std::make_shared<Groups>(world->rank()), {"a mesh and an mpu"});
  refused({}, {}, std::make_shared<Groups>(world->rank(), false), {"rank"});
  refused({}, MeshShape({{"data", 2}, {"tensor", world->rank() == 3 ? 1u : 2u}, {"pipe", world->rank() == 3 ? 2u : 1u}}), {},
          {"the ranks differ in the mesh"});

  // The same ranks in two ways, in one process.
  auto first = gannet::initialize(make_net(), {.config = config_with({}), .mpu = std::make_shared<Groups>(world->rank())}).engine;
  same(first->world_size(), 2u, "ranks with data of their own");
  same(first->rank(), world->rank() / 2, "this rank's place among them");
  refused({}, MeshShape({{"data", 4}}), {},
          {"4 ranks are to be laid out as data 4", "lays the same ranks out as data 2 x tensor 2"});
  first.reset();
  gannet::initialize(make_net(), {.config = config_with({})});
}
TEST(Mesh, AMeshThatDoesNotFitIsAnErrorOnEveryRank) { expect_all_succeed(run_ranks("wrong_meshes", 4)); }

}  // namespace
