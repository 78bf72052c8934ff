// Offload: masters, states and parameters on a tier train as those in memory do, bit by bit, and their checkpoints load anywhere.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/impl.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

// Sizes of several pages and of less than one block; tied, frozen and small parameters.
struct WideImpl : torch::nn::Module {
  WideImpl() {
    first = register_module("first", torch::nn::Linear(8, 301));
    middle = register_module("middle", torch::nn::Linear(torch::nn::LinearOptions(301, 301).bias(false)));
    last = register_module("last", torch::nn::Linear(301, 4));
    tied = register_parameter("tied", middle->weight);
    frozen = register_parameter("frozen", torch::ones({301, 7}) / 301, /*requires_grad=*/false);
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    at::Tensor h = torch::tanh(first(x.to(first->weight.scalar_type())));
    h = torch::tanh(middle(h)) + 0.1 * torch::matmul(h, tied.t());
    return torch::mse_loss(last(h).to(torch::kFloat), y) + 0 * torch::matmul(h, frozen).sum().to(torch::kFloat);
  }
  torch::nn::Linear first{nullptr}, middle{nullptr}, last{nullptr};
  at::Tensor tied, frozen;
};

Dict config_of(int64_t stage, const std::string& states, const std::string& parameters, const std::string& dtype) {
  Dict config = config_with({{"gradient_clipping", 0.5}});
  config["optimizer"] = Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-3}, {"eps", 1e-6}, {"weight_decay", 0.1}}}};
  Dict zero{
      {"stage", stage}, {"sub_group_size", 8192}, {"stage3_param_persistence_threshold", 400}, {"reduce_bucket_size", 40'000}};
  if (states != "none") zero["offload_optimizer"] = Dict{{"device", states}, {"nvme_path", variable("FOLDER")}};
  if (parameters != "none")
    zero["offload_param"] = Dict{{"device", parameters}, {"nvme_path", variable("FOLDER")}, {"max_in_cpu", 0}};
  config["zero_optimization"] = zero;
  config["aio"] = Dict{{"block_size", 16384}};
  if (variable("ACCELERATOR") == "fake") config["accelerator"] = Dict{{"type", "fake"}, {"params", Dict{{"delay_us", 300}}}};
  if (dtype != "fp32") config[dtype] = Dict{{"enabled", true}};
  return config;
}

struct Run {
  std::shared_ptr<gannet::Engine<WideImpl>> engine;
  std::vector<double> losses;
  Run(int64_t stage, const std::string& states, const std::string& parameters, const std::string& dtype) {
    torch::manual_seed(1);
    engine = gannet::initialize(std::make_shared<WideImpl>(), {.config = config_of(stage, states, parameters, dtype)}).engine;
  }
  void train(int64_t first, int64_t steps) {
    for (int64_t step = first; step < first + steps; ++step) {
      auto [x, y] = make_batch(step * engine->world_size() + engine->rank(), 4);
      const auto loss = engine->forward(x, y);
      losses.push_back(loss.item<double>());
      engine->backward(loss);
      engine->step();
    }
  }
  at::Tensor parameters() { return parameters_of(*engine); }
};

struct Case {
  int64_t stage;
  const char* states;
  const char* parameters;
};
constexpr Case kCases[] = {{1, "nvme", "none"}, {2, "cpu", "none"},  {2, "nvme", "none"}, {3, "cpu", "cpu"},
                           {3, "nvme", "none"}, {3, "none", "nvme"}, {3, "nvme", "nvme"}, {3, "nvme", "cpu"}};

RANK_BODY(agree) {
  gannet::init_distributed({.timeout_seconds = 60});
  for (const char* dtype : {"fp32", "bf16"})
    for (const Case& one : kCases) {
      const bool is_apart = variable("ACCELERATOR") == "fake";  // there parameters are not offloaded without states
      if (is_apart && std::string(one.states) == "none") continue;
      Run plain(one.stage, "none", "none", dtype), offloaded(one.stage, one.states, one.parameters, dtype);
      for (Run* run : {&plain, &offloaded}) run->train(0, 5);
      const std::string what =
          "stage " + std::to_string(one.stage) + ", states on " + one.states + ", parameters on " + one.parameters + ", " + dtype;
      expect(plain.losses == offloaded.losses, what + ": losses");
      expect(torch::equal(plain.parameters(), offloaded.parameters()), what + ": parameters, bitwise");
      for (const auto& range : offloaded.engine->impl().store.ranges()) {
        const bool paged = std::string(one.states) == "nvme";
        expect(range.states[0].is_here() == !paged, what + ": where the states are");
        if (range.has_master_copy()) expect(range.master.is_here() == !paged, what + ": where the masters are");
        expect(range.param.is_here() == (std::string(one.parameters) != "nvme"), what + ": where the parameters are");
      }
      // Writes under a guard, and masters refreshed from parameters, also go through the tier.
      for (Run* run : {&plain, &offloaded}) {
        gannet::zero::GatheredParameters whole(*run->engine, run->engine->module()->parameters(), {.write_from = 0});
        torch::NoGradGuard no_grad;
        for (auto& parameter : run->engine->module()->parameters()) parameter.mul_(0.75);
      }
      for (Run* run : {&plain, &offloaded}) {
        run->engine->refresh_masters();
        run->train(5, 2);
      }
      expect(torch::equal(plain.parameters(), offloaded.parameters()), what + ": after a write guard");
    }
}

class Offload : public testing::Test {
 protected:
  Offload() : folder_(std::filesystem::current_path() / ("offload-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~Offload() override { std::filesystem::remove_all(folder_); }
  ranks::Options with(std::map<std::string, std::string> variables = {}) const {
    variables["FOLDER"] = folder_;
    return {.environment = variables};
  }
  std::string folder_;
};

TEST_F(Offload, ChangesNoBit) {
  for (const int count : {1, 2}) ranks::expect_all_succeed(run_ranks("agree", count, with()));
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "nothing is left on the drive";
}

// The device's memory is apart: gradients and parameters travel, while the update runs on the host.
TEST_F(Offload, ChangesNoBitOnADeviceWithMemoryOfItsOwn) {
  for (const int count : ranks::is_full() ? std::vector{1, 2} : std::vector{2})
    ranks::expect_all_succeed(run_ranks("agree", count, with({{"ACCELERATOR", "fake"}})));
}

// Gradients of a device with memory of its own are kept in the host's, in another dtype, over three micro-batches, in buckets of
// which several are on their way: as those that stay.
RANK_BODY(gradients_agree) {
  gannet::init_distributed({.timeout_seconds = 60});
  const auto run_of = [](const Case& one, const char* states, const Dict& more) {
    Dict config = config_of(one.stage, states, "none", "bf16");
    config["gradient_accumulation_steps"] = 3;
    config["accelerator"] = Dict{{"type", "fake"}, {"params", Dict{{"delay_us", 3000}}}};
    config["zero_optimization"].as_dict()["reduce_bucket_size"] = 1000;  // a bucket for each tensor
    for (const auto& [key, value] : more.entries()) config[key] = value;
    torch::manual_seed(1);
    return gannet::initialize(std::make_shared<WideImpl>(), {.config = config}).engine;
  };
  const Dict kMore[] = {{},
                        {{"data_types", Dict{{"grad_accum_dtype", "fp32"}}}, {"communication_data_type", "bf16"}},
                        {{"data_types", Dict{{"grad_accum_dtype", "bf16"}}}, {"communication_data_type", "fp32"}}};
  for (const Case& one : {Case{2, "cpu", "none"}, Case{3, "cpu", "none"}, Case{3, "nvme", "none"}})
    for (const Dict& more : kMore) {
      const auto stays = run_of(one, "none", more), goes = run_of(one, one.states, more);
      const std::string what = "stage " + std::to_string(one.stage) + ", states on " + one.states;
      expect(!stays->impl().host_gradients && goes->impl().host_gradients, what + ": who keeps gradients on the host");
      for (int64_t micro_batch = 0; micro_batch < 6; ++micro_batch) {
        auto [x, y] = make_batch(micro_batch * stays->world_size() + stays->rank(), 4);
        for (auto* engine : {stays.get(), goes.get()})
          engine->backward(engine->forward(x, y), {.create_graph = micro_batch == 4});
        if (micro_batch % 3 == 2)
          for (const std::string& name : stays->parameter_names())
            expect(torch::equal(stays->full_gradient(name), goes->full_gradient(name)), what + ": the gradient of " + name);
        for (auto* engine : {stays.get(), goes.get()}) engine->step();
        if (micro_batch != 1) continue;
        const std::string tag = "between" + std::to_string(one.stage) + one.states + std::to_string(&more - kMore);
        goes->save_checkpoint(variable("FOLDER") + "/between", {.tag = tag});
        goes->load_checkpoint(variable("FOLDER") + "/between", {.tag = tag});
      }
      expect(torch::equal(parameters_of(*stays), parameters_of(*goes)), what + ": parameters");
    }
}

TEST_F(Offload, GradientsOnTheHostAreThoseOfTheDevice) {
  for (const int count : ranks::is_full() ? std::vector{1, 2} : std::vector{2})
    ranks::expect_all_succeed(run_ranks("gradients_agree", count, with({{"ACCELERATOR", "fake"}})));
}

// Some parameters stay in memory, the others are on the drive: no value knows of it, nor does a checkpoint.
RANK_BODY(keeps_in_part) {
  gannet::init_distributed({.timeout_seconds = 60});
  const auto run_of = [](const char* parameters, int64_t max_in_cpu, const char* dtype) {
    Dict config = config_of(3, "cpu", parameters, dtype);
    Dict& zero = config["zero_optimization"].as_dict();
    if (zero.find("offload_param")) zero["offload_param"].as_dict()["max_in_cpu"] = max_in_cpu;
    torch::manual_seed(1);
    return gannet::initialize(std::make_shared<WideImpl>(), {.config = config}).engine;
  };
  const auto micro_batch = [](gannet::EngineBase& any, int64_t index) {
    auto& engine = static_cast<gannet::Engine<WideImpl>&>(any);
    auto [x, y] = make_batch(index * engine.world_size() + engine.rank(), 4);
    engine.backward(engine.forward(x, y));
    engine.step();
  };
  for (const char* dtype : {"fp32", "bf16"}) {
    const auto plain = run_of("none", 0, dtype), part = run_of("nvme", 5000, dtype), all = run_of("nvme", 1'000'000, dtype);
    int64_t here = 0, there = 0;
    for (const auto* ranges : {&part->impl().store.ranges(), &part->impl().store.frozen()})
      for (const auto& range : *ranges) (range.param.is_here() ? here : there) += range.shard_numel;
    expect(here > 0 && here <= 5000 + 4096, "elements in memory: " + std::to_string(here));
    expect(there >= 301 * 301 / part->world_size(), "elements on the drive: " + std::to_string(there));
    for (const auto& range : all->impl().store.ranges()) expect(range.param.is_here(), "nothing is on the drive");
    for (int64_t step = 0; step < 4; ++step)
      for (const auto& engine : {plain, part, all}) micro_batch(*engine, step);
    expect(torch::equal(parameters_of(*plain), parameters_of(*part)), std::string(dtype) + ": in part");
    expect(torch::equal(parameters_of(*plain), parameters_of(*all)), std::string(dtype) + ": all");
    // Under a write guard, and through checkpoints of each other.
    {
      gannet::zero::GatheredParameters whole(*part, part->module()->parameters(), {.write_from = 0});
      torch::NoGradGuard no_grad;
      for (auto& parameter : part->module()->parameters()) parameter.mul_(0.75);
    }
    part->set_full_fp32_parameter("last.bias", torch::full({4}, 0.25));
    part->refresh_masters();
    const std::string folder = variable("FOLDER") + "/part-" + dtype;
    part->save_checkpoint(folder);
    plain->load_checkpoint(folder);
    for (const auto& engine : {plain, part}) micro_batch(*engine, 4);
    expect(torch::equal(parameters_of(*plain), parameters_of(*part)), std::string(dtype) + ": gone on in memory");
    plain->save_checkpoint(folder + "-back");
    all->load_checkpoint(folder + "-back");
    part->load_checkpoint(folder + "-back");
    for (const auto& engine : {all, part}) micro_batch(*engine, 5);
    expect(torch::equal(parameters_of(*all), parameters_of(*part)), std::string(dtype) + ": gone on in part");
  }
}

TEST_F(Offload, MaxInCpuKeepsAPartOfTheParametersInMemory) {
  for (const char* accelerator : {"cpu", "fake"})
    for (const int count : {1, 2}) {
      if ((accelerator == std::string("cpu")) == (count == 1) && !ranks::is_full()) continue;
      std::filesystem::remove_all(folder_);
      std::filesystem::create_directories(folder_);
      ranks::expect_all_succeed(run_ranks("keeps_in_part", count, with({{"ACCELERATOR", accelerator}})));
    }
}

// ---- Checkpoints from any tier to any tier -------------------------------------------------------------------------------

RANK_BODY(saves) {
  Run run(std::atoll(variable("STAGE").c_str()), variable("STATES"), variable("PARAMETERS"), variable("DTYPE"));
  run.train(0, 4);
  run.engine->save_checkpoint(variable("FOLDER") + "/saved", {.tag = "saved"});
  run.train(4, 2);
  run.engine->save_checkpoint(variable("FOLDER") + "/saved", {.tag = "after"});
}
RANK_BODY(loads) {
  Run run(std::atoll(variable("STAGE").c_str()), variable("STATES"), variable("PARAMETERS"), variable("DTYPE"));
  run.train(0, 1);
  run.engine->load_checkpoint(variable("FOLDER") + "/saved", {.tag = "saved"});
  run.engine->save_checkpoint(variable("FOLDER") + "/saved", {.tag = "again", .save_latest = false});
  run.train(4, 2);
  run.engine->save_checkpoint(variable("FOLDER") + "/saved", {.tag = "went-on", .save_latest = false});
}

TEST_F(Offload, ACheckpointLoadsAtEveryTier) {
  struct Place {
    int stage;
    const char *states, *parameters;
    int ranks;
  };
  const Place places[] = {{0, "none", "none", 1}, {1, "nvme", "none", 2}, {2, "cpu", "none", 1},
                          {3, "nvme", "nvme", 2}, {3, "none", "cpu", 3},  {3, "nvme", "nvme", 1}};
  const auto at = [&](const Place& place, const char* dtype) {
    return with(
        {{"STAGE", std::to_string(place.stage)}, {"STATES", place.states}, {"PARAMETERS", place.parameters}, {"DTYPE", dtype}});
  };
  for (size_t from = 0; from < std::size(places); ++from) {
    const char* dtype = from % 2 == 0 ? "bf16" : "fp32";
    std::filesystem::remove_all(folder_ + "/saved");
    ranks::expect_all_succeed(run_ranks("saves", places[from].ranks, at(places[from], dtype)));
    const auto saved = tensors_of(folder_ + "/saved", "saved"), after = tensors_of(folder_ + "/saved", "after");
    for (size_t step : {1, 2, 3}) {
      if (step != 1 + from % 3 && !ranks::is_full()) continue;
      const Place& to = places[(from + step) % std::size(places)];
      SCOPED_TRACE("from place " + std::to_string(from) + " to " + std::to_string((from + step) % std::size(places)));
      ranks::expect_all_succeed(run_ranks("loads", to.ranks, at(to, dtype)));
      const auto again = tensors_of(folder_ + "/saved", "again"), went_on = tensors_of(folder_ + "/saved", "went-on");
      ASSERT_EQ(again.size(), saved.size());
      for (const auto& [name, values] : saved) EXPECT_TRUE(at::equal(again.at(name), values)) << name;
      // Other ranks have other batches: then only the same number of ranks can be compared.
      if (to.ranks != places[from].ranks) continue;
      for (const auto& [name, values] : after)
        if (name.starts_with("parameter/")) {
          EXPECT_LT(difference(went_on.at(name), values), std::string(dtype) == "fp32" ? 1e-5 : 2e-2) << name;
        }
    }
  }
}

// ---- Impossible requests
// -------------------------------------------------------------------------------------------------------

TEST_F(Offload, WhatCannotBeIsToldWithItsPlace) {
  const auto told = [&](const std::string& zero) -> std::string {
    try {
      gannet::initialize(
          make_net(),
          {.config =
               R"({"train_batch_size": 4, "accelerator": {"type": "cpu"}, "optimizer": {"type": "AdamW"}, "zero_optimization": )" +
               zero + "}"});
    } catch (const gannet::Error& error) {
      return error.what();
    }
    return "";
  };
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(told(R"({"stage": 1, "offload_optimizer": {"device": "nvme"}})"),
              AllOf(HasSubstr("nvme_path"), HasSubstr("offload plugin nvme")));
  EXPECT_THAT(told(R"({"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "scratch"}})"), HasSubstr("scratch"));
  EXPECT_THAT(told(R"({"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "/no/such/folder"}})"),
              HasSubstr("/no/such/folder"));
  EXPECT_THAT(told(R"({"stage": 1, "offload_optimizer": {"device": "tape"}})"), AllOf(HasSubstr("tape"), HasSubstr("offload")));
  EXPECT_THAT(told(R"({"stage": 2, "offload_param": {"device": "cpu"}})"), HasSubstr("offload_param belongs to ZeRO stage 3"));
  EXPECT_THAT(told(R"({"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}})"),
              HasSubstr("states that are offloaded in part"));
}

// max_in_cpu leaves all, a part or nothing of the group in memory: its count is one number, and counts once a step.
TEST_F(Offload, AStateOfAWholeGroupIsNotCutInTwo) {
  for (const int64_t max_in_cpu : {0, 5000, 1'000'000}) {
    Dict config = config_of(3, "none", "nvme", "fp32");
    config["zero_optimization"].as_dict()["offload_param"] =
        Dict{{"device", "nvme"}, {"nvme_path", folder_}, {"max_in_cpu", max_in_cpu}};
    config["optimizer"] = Dict{{"type", "Probe"}, {"params", Dict{{"mode", "host"}}}};
    config["plugins"] = Dict{{"path", gannet::List{gannet::Value(PROBE_PLUGIN)}}};
    auto engine = gannet::initialize(std::make_shared<WideImpl>(), {.config = config}).engine;
    EXPECT_EQ(engine->impl().store.ranges().size(), max_in_cpu == 5000 ? 2u : 1u);
    train(*engine, 2);
    EXPECT_EQ(engine->impl().groups[0].group_states[2].item<int64_t>(), 2);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Offload, AnOptimizerOfTheProgramsOwnClassIsNotOffloaded) {
  struct Own : torch::optim::SGD {
    using SGD::SGD;
  };
  const auto told = [&](const Dict& zero) {
    Dict config = config_with({{"zero_optimization", zero}});
    config.erase("optimizer");
    auto net = make_net();
    auto own = std::make_shared<Own>(net->parameters(), torch::optim::SGDOptions(0.1));
    return message_of([&] { gannet::initialize(net, {.config = config, .optimizer = own}); });
  };
  const Dict nvme{{"device", "nvme"}, {"nvme_path", folder_}};
  EXPECT_EQ(told(Dict{{"stage", 1}}), "") << "on one rank";
  EXPECT_THAT(told(Dict{{"stage", 1}, {"offload_optimizer", nvme}}), testing::HasSubstr("offload updates them a page at a time"));
  EXPECT_THAT(told(Dict{{"stage", 3}, {"offload_param", nvme}}), testing::HasSubstr("offload updates them a page at a time"));
}

}  // namespace
