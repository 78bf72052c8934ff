// Two ranks on the checked device in the ways that few programs train in: they train as on the CPU, and no use of a buffer is
// unordered. Each ends in waits of its own, which omissions.py takes out one by one.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <string>

#include "activation/blocks.h"
#include "comm/ranks.h"
#include "engine/impl.h"
#include "engine/models.h"
#include "update/group_collectives.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

std::string accelerator() { return std::getenv("ACCELERATOR"); }

Dict config_at(int64_t stage, const Dict& more = {}) {
  Dict zero{{"stage", stage}, {"reduce_bucket_size", 200}};
  if (stage == 3) zero["stage3_param_persistence_threshold"] = 40;
  Dict config = config_with({{"zero_optimization", zero}, {"gradient_accumulation_steps", 2}, {"gradient_clipping", 0.5}});
  config["accelerator"] = Dict{{"type", accelerator()}};
  for (const auto& [key, value] : more.entries()) config[key] = value;
  return config;
}

void print_figure(double figure) { std::cout << "figure: " << std::setprecision(9) << figure << std::endl; }

template <class Engine, class Batch>
void train_with(Engine& engine, int64_t micro_batches, const Batch& batch, const std::function<void()>& before_step = nullptr) {
  for (int64_t i = 0; i < micro_batches; ++i) {
    const auto [x, y] = batch(i);
    const at::Tensor loss = engine.forward(x.to(engine.device()), y.to(engine.device()));
    print_figure(loss.template item<double>());
    engine.backward(loss);
    if (before_step) before_step();
    engine.step();
  }
}
template <class Engine>
void train(Engine& engine, int64_t micro_batches, const std::function<void()>& before_step = nullptr) {
  train_with(
      engine, micro_batches, [&](int64_t i) { return make_batch(i * engine.world_size() + engine.rank(), 4); }, before_step);
}

// Each parameter is whole on one rank, which sends it to the others.
void has_owners() {
  for (const int64_t stage : {1, 2, 3}) {
    const Dict muon{{"type", "Muon"}, {"params", Dict{{"lr", 1e-2}}}};
    const auto engine = gannet::initialize(make_net(), {.config = config_at(stage, {{"optimizer", muon}})}).engine;
    train(*engine, 6);
  }
}

// Values, gradients and states that are asked for; writes; a checkpoint and its resume.
void is_asked() {
  for (const int64_t stage : {0, 2, 3}) {
    const std::filesystem::path folder = std::string(std::getenv("FOLDER")) + "/" + accelerator() + std::to_string(stage);
    const auto net = make_net(1, 64);
    const auto engine = gannet::initialize(net, {.config = config_at(stage)}).engine;
    int64_t calls = 0;
    train(*engine, 4, [&] {
      if (++calls % 2 == 0) print_figure(engine->full_gradient("second.weight").norm().item<double>());
      print_figure(engine->full_fp32_parameter("first.weight").norm().item<double>());
    });
    {
      const torch::NoGradGuard no_grad;
      const gannet::zero::GatheredParameters guard(*engine, net->parameters(), {.write_from = 0});
      if (engine->rank() == 0) net->second->bias.fill_(0.25);
    }
    train(*engine, 1);
    engine->save_checkpoint(folder);  // in the middle of a step
    train(*engine, 2);
    engine->load_checkpoint(folder);  // the same; what the step has summed so far is still on its way
    print_figure(engine->full_optimizer_state("first.weight", "exp_avg").norm().item<double>());
    for (const auto& [name, value] : engine->fp32_parameters()) print_figure(value.norm().item<double>());
    train(*engine, 3);
  }
}

// A gradient arrives a second time while its bucket is in flight: at first it is not known that it
// will.
struct LateImpl : torch::nn::Module {
  LateImpl() {
    first = register_module("first", torch::nn::Linear(8, 16));
    twice = register_module("twice", torch::nn::Linear(16, 16));
    last = register_module("last", torch::nn::Linear(16, 4));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor h = torch::tanh(twice(torch::tanh(first(x))));
    const at::Tensor z = nested ? gannet::checkpointing::checkpoint({.use_reentrant = true}, twice, h) : twice(h);
    return torch::mse_loss(last(z), y);
  }
  bool nested = false;
  torch::nn::Linear first{nullptr}, twice{nullptr}, last{nullptr};
};
void is_late() {
  for (const int64_t stage : {0, 1, 2}) {
    torch::manual_seed(1);
    const auto net = std::make_shared<LateImpl>();
    // Each backward sends: one that only gathers would learn of the second arrival before.
    const auto engine = gannet::initialize(net, {.config = config_at(stage, {{"gradient_accumulation_steps", 1}})}).engine;
    for (const bool nested : {false, true, false}) {
      net->nested = nested;
      train(*engine, 2);
    }
  }
}

// Two stages of a pipeline hold one weight, whose gradients are summed.
struct TiedImpl : torch::nn::Module {
  explicit TiedImpl(int64_t stage) {
    words = register_parameter("words", torch::randn({8, 4}) * 0.3);
    bias = register_parameter("bias" + std::to_string(stage), torch::zeros({4}));
    gannet::declare_tied(words, "words");
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) { return torch::mse_loss(torch::matmul(x, words) + bias, y); }
  at::Tensor words, bias;
};
void is_tied() {
  for (const char* tier : {"none", "cpu"}) {
    Dict config = config_at(2, {{"gannet", Dict{{"mesh", Dict{{"pipe", 2}}}}}});
    if (tier == std::string("cpu")) config["zero_optimization"].as_dict()["offload_optimizer"] = Dict{{"device", tier}};
    const auto rank = static_cast<int64_t>(gannet::init_distributed()->rank());
    torch::manual_seed(1);
    const auto engine = gannet::initialize(std::make_shared<TiedImpl>(rank), {.config = config}).engine;
    train_with(*engine, 4, [&](int64_t i) { return make_batch(i * 2 + rank, 4); });
  }
}

// Kept inputs of regions are shared out over the ranks of the tensor axis, and gathered in the device's thread.
void partitions_activations() {
  const Dict more{{"gannet", Dict{{"mesh", Dict{{"tensor", 2}}}}},
                  {"activation_checkpointing", Dict{{"partition_activations", true}}}};
  const auto engine =
      gannet::initialize(make_transformer(Recompute::kBlocks, 3, 12, 2, 0), {.config = config_at(0, more)}).engine;
  train_with(*engine, 4, [](int64_t i) { return words_of(i, 4, 11); });
}

// Requests that an optimizer's plugin may make, followed by kernels. The Comm holds its buffers
// even if the caller frees them.
void asks_for_collectives() {
  const auto engine = gannet::initialize(make_net(), {.config = config_at(0)}).engine;
  gannet::RankContext& context = engine->impl();
  gannet::GroupCollectives collectives(context);
  const auto options = at::TensorOptions().device(engine->device());
  const double mine = engine->rank() + 1;
  for (const auto operation : {GANNET_HOST_ALL_REDUCE, GANNET_HOST_BROADCAST, GANNET_HOST_ALL_GATHER, GANNET_HOST_REDUCE_SCATTER,
                               GANNET_HOST_ALL_TO_ALL}) {
    const at::Tensor send = torch::arange(8, options.dtype(at::kFloat)) * mine, recv = torch::full({8}, mine, options);
    gannet_host_collective args{};
    args.struct_size = sizeof(args);
    args.operation = operation;
    args.dtype = GANNET_FLOAT32;
    args.reduce_op = GANNET_SUM;
    args.send = send.data_ptr();
    args.recv = recv.data_ptr();
    args.count = operation == GANNET_HOST_ALL_REDUCE || operation == GANNET_HOST_BROADCAST ? 8 : 4;
    collectives.run(args);
    print_figure((recv * torch::arange(8, options)).sum().item<double>());
  }
  if (accelerator() == "cpu") return;
  const c10::impl::VirtualGuardImpl streams(engine->device().type());
  for (int i = 0; i < 3; ++i) {
    at::Tensor sum = torch::full({100}, mine, options);
    streams.synchronizeDevice(engine->device().index());
    {
      const c10::StreamGuard guard(streams.getStreamFromGlobalPool(engine->device()));
      context.comm->all_reduce(sum).block();
    }
    sum = at::Tensor();  // of the default stream, which has not waited
    torch::zeros({100}, options).add_(1);
  }
}

const std::map<std::string, void (*)()>& rarer_ways() {
  static const std::map<std::string, void (*)()> all = {{"owners", has_owners},
                                                        {"asked", is_asked},
                                                        {"late", is_late},
                                                        {"tied", is_tied},
                                                        {"partitioned", partitions_activations},
                                                        {"collectives", asks_for_collectives}};
  return all;
}

RANK_BODY(trains_in_a_rarer_way) {
  torch::set_num_threads(1);
  for (const auto& [name, train] : rarer_ways())
    if (!std::getenv("WAY") || name == std::getenv("WAY")) {
      std::cout << "way: " << name << std::endl;
      train();
    }
  gannet::destroy_distributed();
}

std::vector<double> figures_of(const std::string& way, const std::string& on, const std::string& folder) {
  const auto outcomes =
      run_ranks("trains_in_a_rarer_way", 2, {.environment = {{"ACCELERATOR", on}, {"WAY", way}, {"FOLDER", folder}}});
  ranks::expect_all_succeed(outcomes);
  std::vector<double> figures;
  for (const auto& outcome : outcomes) {
    std::istringstream output(outcome.output);
    for (std::string line; std::getline(output, line);)
      if (line.rfind("figure: ", 0) == 0) figures.push_back(std::stod(line.substr(8)));
  }
  return figures;
}

class CheckedWays : public testing::TestWithParam<std::string> {};
TEST_P(CheckedWays, TrainAsOnTheCpuWithNothingUnordered) {
  const auto folder = std::filesystem::temp_directory_path() / ("gannet-checked-ways-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto here = figures_of(GetParam(), "cpu", folder), there = figures_of(GetParam(), "checked", folder);
  std::filesystem::remove_all(folder);
  ASSERT_EQ(there.size(), here.size());
  EXPECT_GE(here.size(), 8u);
  for (size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(there[i], here[i], 2e-6 * std::max(1.0, std::abs(here[i]))) << i;
}
INSTANTIATE_TEST_SUITE_P(Ways, CheckedWays, testing::Values("owners", "asked", "late", "tied", "partitioned", "collectives"),
                         [](const auto& info) { return info.param; });

}  // namespace
