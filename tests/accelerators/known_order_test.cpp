// ZeRO stage 3 on streams: once the ranks have agreed on the order in which parameters are used, gathers make the host wait for
// no other rank.
#include <gannet/distributed.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <string>

#include "accelerators/checked.h"
#include "comm/ranks.h"
#include "control/world.h"
#include "engine/impl.h"
#include "engine/models.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::run_ranks;

struct SwitchingImpl : torch::nn::Module {
  SwitchingImpl() {
    for (int i = 0; i < 6; ++i) layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(8, 8)));
    last = register_module("last", torch::nn::Linear(8, 4));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    at::Tensor h = x;
    for (size_t i = 0; i < layers.size(); ++i)
      if (i != left_out) h = torch::tanh(layers[i](h));
    return torch::mse_loss(last(h), y);
  }
  size_t left_out = 5;
  std::vector<torch::nn::Linear> layers;
  torch::nn::Linear last{nullptr};
};

std::shared_ptr<gannet::Engine<SwitchingImpl>> make_engine(const std::shared_ptr<SwitchingImpl>& net) {
  torch::set_num_threads(1);
  const char* const comm = std::getenv("COMM");
  Dict config = config_with({{"gradient_clipping", 0.5},
                             {"accelerator", Dict{{"type", std::getenv("ACCELERATOR")}}},
                             {"comm", Dict{{"type", comm ? comm : "auto"}}},
                             {"gannet", Dict{{"deadline_seconds", 3}}},
                             {"zero_optimization", Dict{{"stage", 3}, {"stage3_param_persistence_threshold", 0}}}});
  return gannet::initialize(net, {.config = config}).engine;
}

RANK_BODY(known_order) {
  torch::manual_seed(1);
  const auto net = std::make_shared<SwitchingImpl>();
  const auto engine = make_engine(net);
  const auto host_calls = [] { return gannet::init_distributed()->world()->host_comm().counters().calls; };
  for (int64_t step = 0; step < 16; ++step) {
    net->left_out = step == 6 ? 2 : step < 10 ? 5 : 0;  // one step takes another path; then all do
    const auto [x, y] = make_batch(step * 2 + engine->rank(), 4);
    const at::Tensor on_device = x.to(engine->device()), wanted = y.to(engine->device());
    if (step == 13) {  // an evaluation between two steps
      const torch::NoGradGuard no_grad;
      engine->eval();
      engine->forward(on_device, wanted);
      engine->train();
    }
    const uint64_t before = host_calls();
    const at::Tensor loss = engine->forward(on_device, wanted);
    engine->backward(loss);
    const uint64_t calls = host_calls() - before;
    engine->step();
    std::cout << "loss: " << std::setprecision(9) << loss.item<float>() << " " << calls << std::endl;
  }
  gannet::destroy_distributed();
}

struct Trained {
  std::vector<float> losses;
  std::vector<int> calls;
};
Trained train_on(const std::string& accelerator, const std::string& comm) {
  const auto outcomes = run_ranks("known_order", 2, {.environment = {{"ACCELERATOR", accelerator}, {"COMM", comm}}});
  ranks::expect_all_succeed(outcomes);
  Trained trained;
  std::istringstream output(outcomes[0].output);
  for (std::string line; std::getline(output, line);) {
    if (line.rfind("loss: ", 0) != 0) continue;
    std::istringstream words(line.substr(6));
    words >> trained.losses.emplace_back() >> trained.calls.emplace_back();
  }
  return trained;
}

TEST(KnownOrder, TakesTwoHostExchangesAMicroBatch) {
  const Trained here = train_on("cpu", "gloo"), there = train_on("checked", "checked");
  ASSERT_EQ(here.losses.size(), 16u);
  ASSERT_EQ(there.losses.size(), 16u);
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(there.losses[i], here.losses[i], 1e-6) << i;
  for (const size_t step : {1, 2, 3, 4, 5, 9, 12, 13, 14, 15}) EXPECT_EQ(there.calls[step], 2) << step;
  for (const size_t step : {0, 6, 10}) EXPECT_GT(there.calls[step], 2) << step;
  for (const int calls : here.calls) EXPECT_GT(calls, 12);  // the host waits for gathers anyway, and each is checked first
}

struct BlocksImpl : torch::nn::Module {
  BlocksImpl() {
    for (int i = 0; i < 12; ++i) layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(8, 8)));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    at::Tensor h = x;
    for (auto& layer : layers) h = torch::tanh(layer(h));
    return torch::mse_loss(h.narrow(1, 0, 4), y);
  }
  std::vector<torch::nn::Linear> layers;  // a block is two of them: four parameters
};
constexpr int64_t kBlock = 2 * (8 * 8 + 8), kBlocks = 6;  // elements

RANK_BODY(blocks) {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  const auto net = std::make_shared<BlocksImpl>();
  Dict config = config_with({{"accelerator", Dict{{"type", std::getenv("ACCELERATOR")}}}});
  config["zero_optimization"] = Dict{{"stage", 3},
                                     {"stage3_param_persistence_threshold", 0},
                                     {"stage3_max_reuse_distance", std::atoi(std::getenv("REUSE"))},
                                     {"stage3_prefetch_bucket_size", std::atoi(std::getenv("PREFETCH"))}};
  const auto engine = gannet::initialize(net, {.config = config}).engine;
  const bool is_checked = engine->device().type() == at::kPrivateUse1;
  const auto count = [&](const char* of) { return is_checked ? counters().at(of) : 0; };
  const auto gathers = [&] { return engine->impl().store.residency()->gathers(); };
  for (int64_t step = 0; step < 6; ++step) {
    auto [x, y] = make_batch(step * 2 + engine->rank(), 4);
    x = x.to(engine->device());
    y = y.to(engine->device());
    const int64_t before = count("collective_launches"), waits = count("host_waits");
    const uint64_t gathered = gathers();
    const at::Tensor loss = engine->forward(x, y);
    const int64_t launches = count("collective_launches") - before;
    const uint64_t of_forward = gathers() - gathered;
    engine->backward(loss);
    const uint64_t of_backward = gathers() - gathered - of_forward;
    const int64_t waited = count("host_waits") - waits;
    engine->step();
    std::cout << "loss: " << std::setprecision(9) << loss.item<float>() << " " << launches << " " << of_forward << " "
              << of_backward << " " << waited << std::endl;
  }
  gannet::destroy_distributed();
}

struct BlocksStep {
  std::string loss;
  int launches = 0, gathers_of_forward = 0, gathers_of_backward = 0, host_waits = 0;  // launches: of forward
};
std::vector<BlocksStep> train_blocks(const std::string& accelerator, int64_t reuse, int64_t prefetch) {
  const auto outcomes = run_ranks(
      "blocks", 2,
      {.environment = {{"ACCELERATOR", accelerator}, {"REUSE", std::to_string(reuse)}, {"PREFETCH", std::to_string(prefetch)}}});
  ranks::expect_all_succeed(outcomes);
  std::vector<BlocksStep> steps;
  std::istringstream output(outcomes[0].output);
  for (std::string line; std::getline(output, line);) {
    if (line.rfind("loss: ", 0) != 0) continue;
    BlocksStep& step = steps.emplace_back();
    std::istringstream(line.substr(6)) >> step.loss >> step.launches >> step.gathers_of_forward >> step.gathers_of_backward >>
        step.host_waits;
  }
  EXPECT_EQ(steps.size(), 6u) << outcomes[0].output;
  return steps;
}

// A batch is a quarter of what is gathered ahead, here a block. In the first step all gathers are launched one at a time.
TEST(KnownOrder, LaunchesTheGathersOfABlockTogether) {
  for (const int64_t reuse : {int64_t{0}, 1000 * kBlock}) {
    SCOPED_TRACE(reuse);
    const auto one_by_one = train_blocks("checked", reuse, 0), in_batches = train_blocks("checked", reuse, 4 * kBlock);
    const auto on_cpu = train_blocks("cpu", reuse, 4 * kBlock);
    for (size_t step = 0; step < 6; ++step) {
      EXPECT_EQ(in_batches[step].loss, one_by_one[step].loss);
      EXPECT_EQ(in_batches[step].gathers_of_forward, on_cpu[step].gathers_of_forward);
      EXPECT_EQ(in_batches[step].gathers_of_backward, on_cpu[step].gathers_of_backward);
    }
    EXPECT_EQ(in_batches[0].launches, 4 * kBlocks);
    for (size_t step = 1; step < 6; ++step) {
      EXPECT_EQ(one_by_one[step].launches, 2 * kBlocks) << step;  // a batch is an operator's weight and bias
      // Where nothing is kept, the end of forward gathers eight weights for backward, in three batches.
      EXPECT_EQ(in_batches[step].launches, reuse > 0 ? kBlocks : kBlocks + 3) << step;
      EXPECT_EQ(in_batches[step].host_waits, 0) << step;
    }
  }
}

// A rank that leaves the order launches no gather before the others are there.
RANK_BODY(leaves_the_order) {
  const auto net = std::make_shared<SwitchingImpl>();
  const auto engine = make_engine(net);
  for (int64_t step = 0; step < 6; ++step) {
    if (step == 5 && engine->rank() == 1) net->left_out = 1;
    const auto [x, y] = make_batch(step * 2 + engine->rank(), 4);
    try {
      engine->backward(engine->forward(x.to(engine->device()), y.to(engine->device())));
      engine->step();
      ranks::expect(step < 5, "the step with two paths is refused");
    } catch (const gannet::Error& error) {
      ranks::same(step, int64_t{5}, "the step that failed");
      std::cout << error.what() << std::endl;
      std::_Exit(0);
    }
  }
}
TEST(KnownOrder, ARankThatLeavesItEndsTheStepOnAll) {
  const auto outcomes =
      run_ranks("leaves_the_order", 2, {.environment = {{"ACCELERATOR", "checked"}}, .limit = std::chrono::seconds(60)});
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.status, 0) << outcome.output;
}

}  // namespace
