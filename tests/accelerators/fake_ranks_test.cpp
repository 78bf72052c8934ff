// Several ranks on the fake device, whose copies and collectives run on queues and are late by a random time under a seed: they
// train to the bits of the CPU. What the engine would read too early, or write over too early, would differ; omissions.py takes
// the waits and holds out one by one, and shows that this test sees each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

#include "comm/ranks.h"
#include "control/world.h"
#include "engine/impl.h"
#include "engine/models.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::run_ranks;

// The ways in which memory moves: by the layout of the ranks' shards, and between host and device.
struct Way {
  const char* name;
  int64_t width;  // of the model
  Dict zero;
};

std::vector<Way> ways() {
  const Dict cpu{{"device", "cpu"}};
  return {
      {"all_reduce", 16, {{"stage", 0}, {"reduce_bucket_size", 200}}},
      {"sharded_states", 16, {{"stage", 1}, {"reduce_bucket_size", 200}}},
      {"sharded_gradients", 16, {{"stage", 2}, {"reduce_bucket_size", 200}}},
      {"sharded_parameters", 64, {{"stage", 3}, {"reduce_bucket_size", 200}, {"stage3_param_persistence_threshold", 40}}},
      {"updated_on_the_host", 10000, {{"stage", 1}, {"sub_group_size", 4096}, {"offload_optimizer", cpu}}},
      {"gradients_on_the_host",
       10000,
       {{"stage", 2}, {"reduce_bucket_size", 2000}, {"sub_group_size", 4096}, {"offload_optimizer", cpu}}},
      {"parameters_on_the_host",
       64,
       {{"stage", 3}, {"stage3_param_persistence_threshold", 40}, {"offload_optimizer", cpu}, {"offload_param", cpu}}},
  };
}

void train(const Way& way, const Dict& accelerator, const Dict& comm) {
  Dict config = config_with({{"gradient_clipping", 0.5}, {"gradient_accumulation_steps", 2}});
  config["zero_optimization"] = way.zero;
  config["accelerator"] = accelerator;
  config["comm"] = comm;
  auto net = make_net(1, way.width);
  auto engine = gannet::initialize(net, {.config = config}).engine;
  for (int64_t micro_batch = 0; micro_batch < 8; ++micro_batch) {
    auto [x, y] = make_batch(micro_batch * 2 + engine->rank(), 4);
    const at::Tensor loss = engine->forward(x, y);
    std::cout << "figure: " << way.name << " loss " << std::hexfloat << loss.item<float>() << "\n";
    engine->backward(loss);
    engine->step();
  }
  double sum = 0;
  int64_t place = 0;
  for (const auto& [name, value] : engine->fp32_parameters()) sum += value.norm().item<double>() * static_cast<double>(++place);
  std::cout << "figure: " << way.name << " parameters " << std::hexfloat << sum << std::endl;
}

RANK_BODY(trains_in_every_way) {
  torch::set_num_threads(1);
  const bool is_fake = std::string(std::getenv("ACCELERATOR")) == "fake";
  const Dict late{{"delay_us", 2000}, {"seed", std::atoi(std::getenv("SEED"))}};
  for (const Way& way : ways())
    if (is_fake)
      train(way, {{"type", "fake"}, {"params", late}}, {{"type", "fake"}, {"params", late}});
    else
      train(way, {{"type", "cpu"}}, {{"type", "auto"}});
  gannet::destroy_distributed();
}

// The lines that the body printed of its own.
std::vector<std::string> figures(const std::string& accelerator, int seed) {
  const auto outcomes =
      run_ranks("trains_in_every_way", 2, {.environment = {{"ACCELERATOR", accelerator}, {"SEED", std::to_string(seed)}}});
  ranks::expect_all_succeed(outcomes);
  std::vector<std::string> lines;
  for (const auto& outcome : outcomes) {
    std::istringstream output(outcome.output);
    for (std::string line; std::getline(output, line);)
      if (line.rfind("figure: ", 0) == 0) lines.push_back(line);
  }
  return lines;
}

TEST(FakeRanks, TrainToTheBitsOfTheCpuHoweverLateItsQueuesAre) {
  const auto expected = figures("cpu", 0);
  EXPECT_EQ(expected.size(), 2 * 7 * 9);
  for (const int seed : {1, 2}) EXPECT_EQ(figures("fake", seed), expected) << "seed " << seed;
}

// A checkpoint of the middle of a step is loaded in the middle of another, whose sums are still on their way.
RANK_BODY(resumes_within_a_step) {
  torch::set_num_threads(1);
  const std::string folder = std::getenv("FOLDER");
  const Dict late{{"delay_us", 20000}, {"seed", 1}};
  for (const int64_t stage : {0, 1, 2, 3}) {
    Dict config = config_with({{"gradient_accumulation_steps", 2}, {"zero_optimization", Dict{{"stage", stage}}}});
    config["accelerator"] = Dict{{"type", "fake"}};
    config["comm"] = Dict{{"type", "fake"}, {"params", late}};
    const auto engine = gannet::initialize(make_net(), {.config = config}).engine;
    const auto micro_batch = [&](int64_t index) {
      const auto [x, y] = make_batch(index * 2 + engine->rank(), 4);
      engine->backward(engine->forward(x, y));
      return engine->step();
    };
    const auto parameters = [&] {
      std::vector<at::Tensor> all;
      for (const auto& [name, value] : engine->fp32_parameters()) all.push_back(value.flatten());
      return torch::cat(all);
    };
    const std::string run = folder + "/" + std::to_string(stage);
    micro_batch(0);
    engine->save_checkpoint(run);
    ranks::expect(micro_batch(1).applied, "applied");
    const at::Tensor expected = parameters();
    micro_batch(7);
    engine->load_checkpoint(run);
    ranks::expect(micro_batch(1).applied, "applied");
    ranks::expect(parameters().equal(expected), "resumed to the bits at stage " + std::to_string(stage));
  }
  gannet::destroy_distributed();
}
TEST(FakeRanks, ResumeWithinAStepWhoseSumsAreStillOnTheirWay) {
  const auto folder = std::filesystem::temp_directory_path() / ("gannet-fake-resume-" + std::to_string(getpid()));
  ranks::expect_all_succeed(run_ranks("resumes_within_a_step", 2, {.environment = {{"FOLDER", folder.string()}}}));
  std::filesystem::remove_all(folder);
}

RANK_BODY(auto_comm) {
  if (std::getenv("FIRST")) gannet::init_distributed();  // the order that DeepSpeed documents: no device is chosen yet
  const auto engine_on = [](const char* accelerator) {
    Dict config = config_with({{"accelerator", Dict{{"type", accelerator}}}});
    return gannet::initialize(make_net(), {.config = config}).engine;
  };
  const auto on_fake = engine_on("fake"), again = engine_on("fake"), on_cpu = engine_on("cpu");
  const auto comm_of = [](const auto& engine) -> gannet::Comm& { return engine->impl().comm->comm(); };
  ranks::same(comm_of(on_fake).plugin().name(), "fake", "the device's own Comm");
  ranks::same(comm_of(on_cpu).plugin().name(), "gloo", "that of an engine on the CPU beside it");
  ranks::expect(&comm_of(on_fake) == &comm_of(again), "a device has one Comm");
  ranks::same(on_fake->process_group()->world()->host_comm().plugin().name(), "gloo", "numbers and texts of the host");
  for (const auto& engine : {on_fake, on_cpu}) {
    const auto [x, y] = make_batch(engine->rank(), 4);
    engine->backward(engine->forward(x, y));
    ranks::expect(engine->step().applied, "applied");
  }
}
TEST(FakeRanks, HaveTheDevicesCommForTensorsAndGlooForNumbers) { ranks::expect_all_succeed(run_ranks("auto_comm", 2)); }
TEST(FakeRanks, HaveItAlsoWhereTheProgramMadeTheWorldFirst) {
  ranks::expect_all_succeed(run_ranks("auto_comm", 2, {.environment = {{"FIRST", "1"}}}));
}

RANK_BODY(wrong_comms) {
  const auto refused = [](Dict accelerator, Dict comm, const std::string& why) {
    Dict config = config_with({{"accelerator", std::move(accelerator)}, {"comm", std::move(comm)}});
    try {
      gannet::initialize(make_net(), {.config = config});
    } catch (const gannet::Error& error) {
      ranks::expect(std::string(error.what()).find(why) != std::string::npos, "'" + why + "' in: " + error.what());
      gannet::destroy_distributed();
      return;
    }
    throw std::runtime_error("was not refused: " + why);
  };
  refused({{"type", "cpu"}}, {{"type", "fake"}}, "comm plugin 'fake' moves memory of device 'fake'");
  refused({{"type", "fake"}}, {{"type", "fake"}, {"host", "fake"}}, "the ranks' numbers and strings are in the host's");
  // The store ends with rank 0, which waits until the other rank has read its refusal as well.
  const std::filesystem::path is_done = std::getenv("IS_DONE");
  if (std::getenv("RANK") == std::string("1")) std::ofstream(is_done) << "done";
  for (int i = 0; i < 1200 && !std::filesystem::exists(is_done); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}
TEST(FakeRanks, AreToldOfACommThatCannotServeThem) {
  const auto is_done = std::filesystem::temp_directory_path() / ("gannet-wrong-comms-" + std::to_string(getpid()));
  std::filesystem::remove(is_done);  // of a process that had this number before
  ranks::expect_all_succeed(run_ranks("wrong_comms", 2, {.environment = {{"IS_DONE", is_done.string()}}}));
  std::filesystem::remove(is_done);
}

}  // namespace
