// Two ranks on the checked device, whose Comm joins the clocks of its groups to those of streams: they train as on the CPU, and
// no use of a buffer is unordered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include "accelerators/checked.h"
#include "comm/ranks.h"
#include "engine/models.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::run_ranks;

RANK_BODY(trains_on_the_checked_device) {
  torch::set_num_threads(1);
  const std::string accelerator = std::getenv("ACCELERATOR");
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  if (is_set("WORLD_FIRST")) gannet::init_distributed();  // the order that DeepSpeed documents: no device is chosen yet
  const Dict cpu{{"device", "cpu"}};
  const std::vector<std::pair<int64_t, Dict>> ways = {
      // width of the model, and how its memory moves
      {64, {{"stage", 0}, {"reduce_bucket_size", 200}}},
      {64, {{"stage", 1}, {"reduce_bucket_size", 200}}},
      {64, {{"stage", 2}, {"reduce_bucket_size", 200}}},
      {64, {{"stage", 3}, {"reduce_bucket_size", 200}, {"stage3_param_persistence_threshold", 40}}},
      {10000, {{"stage", 1}, {"sub_group_size", 4096}, {"offload_optimizer", cpu}}},
      {10000, {{"stage", 2}, {"reduce_bucket_size", 2000}, {"sub_group_size", 4096}, {"offload_optimizer", cpu}}},
      {64, {{"stage", 3}, {"stage3_param_persistence_threshold", 40}, {"offload_optimizer", cpu}, {"offload_param", cpu}}}};
  for (const auto& [width, way] : ways) {
    Dict config = config_with({{"gradient_clipping", 0.5}, {"gradient_accumulation_steps", 2}});
    config["zero_optimization"] = way;
    config["accelerator"] = Dict{{"type", accelerator}};
    if (is_set("OVER_GLOO")) config["comm"] = Dict{{"type", "gloo"}};
    std::shared_ptr<NetImpl> net;
    {
      std::optional<gannet::zero::Init> shared_out;
      if (is_set("SHARED_OUT")) shared_out.emplace(gannet::zero::Init::Options{.config = config});
      net = make_net(1, width);
    }
    const auto engine = gannet::initialize(net, {.config = config}).engine;
    const at::Device device = net->parameters().front().device();
    for (int64_t micro_batch = 0; micro_batch < 8; ++micro_batch) {
      const auto [x, y] = make_batch(micro_batch * 2 + engine->rank(), 4);
      const at::Tensor loss = engine->forward(x.to(device), y.to(device));
      std::cout << "loss: " << std::setprecision(9) << loss.item<float>() << std::endl;
      engine->backward(loss);
      engine->step();
    }
  }
  if (accelerator == "checked") {
    ranks::same(counters().at("races"), int64_t{0}, "races");
    ranks::same(counters().at("collectives") > 0, !is_set("OVER_GLOO"), "the device's Comm was used");
  }
  gannet::destroy_distributed();
}

std::vector<float> losses_on(const std::string& accelerator, std::map<std::string, std::string> how = {}) {
  how["ACCELERATOR"] = accelerator;
  const auto outcomes = run_ranks("trains_on_the_checked_device", 2, {.environment = how});
  ranks::expect_all_succeed(outcomes);
  std::vector<float> losses;
  for (const auto& outcome : outcomes) {
    std::istringstream output(outcome.output);
    for (std::string line; std::getline(output, line);)
      if (line.rfind("loss: ", 0) == 0) losses.push_back(std::stof(line.substr(6)));
  }
  return losses;
}

void expect_those_of_the_cpu(const std::vector<float>& there) {
  static const std::vector<float> here = losses_on("cpu");
  ASSERT_EQ(here.size(), 2u * 7 * 8);
  ASSERT_EQ(there.size(), here.size());
  for (size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(there[i], here[i], 1e-6) << i;
}
TEST(CheckedRanks, TrainAsOnTheCpuWithNothingUnordered) { expect_those_of_the_cpu(losses_on("checked")); }
TEST(CheckedRanks, TrainWhereTheProgramMadeTheWorldFirst) {
  expect_those_of_the_cpu(losses_on("checked", {{"WORLD_FIRST", "1"}}));
}
// A Comm of the host's memory moves page-locked copies.
TEST(CheckedRanks, TrainOverGloo) { expect_those_of_the_cpu(losses_on("checked", {{"OVER_GLOO", "1"}})); }
// LibTorch starts its threads at the first backward of the process, one for each device that it knows then.
RANK_BODY(backward_before_the_device) {
  const auto engine_on = [](const char* accelerator, int64_t devices) {
    Dict config = config_with({});
    config["accelerator"] = Dict{{"type", accelerator}};
    if (devices > 0) config["accelerator"].as_dict()["params"] = Dict{{"device_count", devices}};
    return gannet::initialize(make_net(), {.config = config}).engine;
  };
  const auto engine = engine_on("cpu", 0);
  const auto [x, y] = make_batch(0, 4);
  engine->backward(engine->forward(x, y));
  engine_on("checked", 1);
}
TEST(CheckedRanks, AreToldOfABackwardThatCameBeforeTheDevice) {
  const auto outcome = ranks::run_one("backward_before_the_device", {{"RANK", ""}, {"WORLD_SIZE", ""}});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output,
              testing::AllOf(testing::HasSubstr("LibTorch has no thread for backward on checked:0"),
                             testing::HasSubstr("make the engine that trains there before the first backward()")));
}

// Rank 1 dies in backward, behind the gather that rank 0's next one waits for it in, on the device's thread.
RANK_BODY(killed_in_backward) {
  torch::set_num_threads(1);
  Dict config = config_with({{"accelerator", Dict{{"type", "checked"}}},
                             {"zero_optimization", Dict{{"stage", 3}, {"stage3_param_persistence_threshold", 0}}}});
  struct Dying : NetImpl {
    at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
      const at::Tensor hidden = torch::tanh(first(x));
      if (dies)
        hidden.register_hook([this](const at::Tensor&) {
          if (rank == 1) std::raise(SIGKILL);
          killed = std::chrono::steady_clock::now();
        });
      return torch::mse_loss(second(hidden), y);
    }
    bool dies = false;
    uint32_t rank = 0;
    std::chrono::steady_clock::time_point killed;
  };
  const auto net = std::make_shared<Dying>();
  const auto engine = gannet::initialize(net, {.config = config}).engine;
  net->rank = engine->rank();
  for (int64_t step = 0; step < 2; ++step) {
    net->dies = step == 1;
    const auto [x, y] = make_batch(step * 2 + engine->rank(), 4);
    const at::Tensor loss = engine->forward(x.to(engine->device()).requires_grad_(true), y.to(engine->device()));
    try {
      engine->backward(loss);
      engine->step();
    } catch (const gannet::Error& error) {
      const auto waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - net->killed).count();
      std::cout << error.what() << "\nnamed " << (waited < 10 ? "within 10 s" : "too late") << ": " << waited << " s"
                << std::endl;
      std::_Exit(0);
    }
  }
}
TEST(CheckedRanks, NameARankThatDiedWhileAGatherOfBackwardWaitsForIt) {
  const auto outcomes = run_ranks("killed_in_backward", 2);
  EXPECT_EQ(outcomes[1].status, 128 + SIGKILL);
  EXPECT_EQ(outcomes[0].status, 0);
  EXPECT_THAT(outcomes[0].output, testing::AllOf(testing::HasSubstr("rank 1"), testing::HasSubstr("backward"),
                                                 testing::HasSubstr("named within 10 s")));
}
TEST(CheckedRanks, TrainAModelThatWasSharedOutWhileItWasBuilt) {
  expect_those_of_the_cpu(losses_on("checked", {{"SHARED_OUT", "1"}}));
}

}  // namespace
