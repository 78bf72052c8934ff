// ZeRO stages on several ranks: they train as stage 0 does, own what they should, send what they should, and their checkpoints
// load at any stage and number of ranks.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "control/world.h"
#include "interfaces/comm.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::Value;
using ranks::expect;
using ranks::run_ranks;
using testing::HasSubstr;

int64_t number(const char* name) { return std::atoll(variable(name).c_str()); }

// Batch norm, tied weights, a frozen and an unused parameter, sizes that do not divide by anything.
struct OddImpl : torch::nn::Module {
  OddImpl() {
    first = register_module("first", torch::nn::Linear(8, 37));
    norm = register_module("norm", torch::nn::BatchNorm1d(37));
    middle = register_module("middle", torch::nn::Linear(torch::nn::LinearOptions(37, 37).bias(false)));
    last = register_module("last", torch::nn::Linear(37, 4));
    tied = register_parameter("tied", middle->weight);
    frozen = register_parameter("frozen", torch::ones({5}), /*requires_grad=*/false);
    unused = register_parameter("unused", torch::ones({3, 11}));
    empty = register_parameter("empty", torch::zeros({0}));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const auto dtype = first->weight.scalar_type();
    at::Tensor h = torch::tanh(first(x.to(dtype)));
    h = norm(h.to(norm->running_mean.scalar_type())).to(dtype);
    h = torch::tanh(middle(h)) + torch::matmul(h, tied.t());
    return torch::mse_loss(last(h).to(torch::kFloat), y.to(torch::kFloat)) + 0 * frozen.sum().to(torch::kFloat);
  }
  torch::nn::Linear first{nullptr}, middle{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor tied, frozen, unused, empty;
};

Dict zero_config(int64_t stage, int64_t bucket, const std::string& dtype, int64_t accumulation) {
  Dict config = config_with(
      {{"train_micro_batch_size_per_gpu", 4}, {"gradient_accumulation_steps", accumulation}, {"gradient_clipping", 0.5}});
  config["optimizer"] = Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-3}, {"eps", 1e-6}, {"weight_decay", 0.1}}}};
  config["zero_optimization"] = Dict{{"stage", stage}, {"reduce_bucket_size", bucket}};
  if (stage == 3) {  // some parameters stay whole with large buckets; with small ones none does, and little is gathered ahead
    auto& zero = config["zero_optimization"].as_dict();
    zero["stage3_param_persistence_threshold"] = bucket < 1000 ? 0 : 64;
    zero["stage3_prefetch_bucket_size"] = bucket < 1000 ? 200 : 50'000'000;
    zero["stage3_max_reuse_distance"] = bucket < 1000 ? 0 : 1'000'000;
  }
  if (dtype != "fp32") config[dtype] = Dict{{"enabled", true}};
  if (dtype != "fp32")
    config["data_types"] = Dict{{"buffer_dtype", dtype}};  // batch norm refuses 16-bit input beside fp32 statistics
  if (dtype == "fp16") config["fp16"] = Dict{{"enabled", true}, {"initial_scale_power", 26}, {"loss_scale_window", 4}};
  return config;
}

struct Run {
  std::shared_ptr<OddImpl> model;
  std::shared_ptr<gannet::Engine<OddImpl>> engine;
  std::vector<double> losses;
  int64_t skipped = 0;

  explicit Run(const Dict& config) {
    torch::manual_seed(1 + gannet::init_distributed({.timeout_seconds = 60})->rank());  // rank 0's values win
    model = std::make_shared<OddImpl>();
    engine = gannet::initialize(model, {.config = config}).engine;
  }
  void train(int64_t first_step, int64_t steps, int64_t backwards = 1) {
    const int64_t accumulation = engine->gradient_accumulation_steps();
    for (int64_t step = first_step; step < first_step + steps; ++step)
      for (int64_t micro = 0; micro < accumulation; ++micro) {
        for (int64_t again = 0; again < backwards; ++again) {
          auto [x, y] =
              make_batch((((step * accumulation + micro) * backwards + again) * engine->world_size() + engine->rank()), 4);
          auto loss = engine->forward(x, y);
          losses.push_back(loss.item<double>());
          engine->backward(loss);
        }
        if (!engine->step().applied && micro + 1 == accumulation) ++skipped;
      }
  }
  at::Tensor parameters() { return parameters_of(*engine); }
};

// DTYPE, ACCUMULATION, BACKWARDS: stages 1 and 2, with one bucket and with many, against stage 0.
RANK_BODY(stages_agree) {
  auto world = gannet::init_distributed({.timeout_seconds = 60});
  const std::string dtype = variable("DTYPE");
  const int64_t accumulation = number("ACCUMULATION"), backwards = number("BACKWARDS");
  Run plain(zero_config(0, 500'000'000, dtype, accumulation));
  plain.train(0, 8, backwards);
  for (const int64_t stage : {1, 2, 3})
    for (const int64_t bucket : {int64_t{500'000'000}, int64_t{400}}) {
      Run sharded(zero_config(stage, bucket, dtype, accumulation));
      sharded.train(0, 8, backwards);
      const double apart = difference(sharded.parameters(), plain.parameters());
      const std::string what = "stage " + std::to_string(stage) + ", buckets of " + std::to_string(bucket) + ": " +
                               std::to_string(apart * 1e9) + "e-9 apart";
      // On two ranks a sum has one order. Stage 2 adds micro-batches of all ranks, the others each rank's own first.
      const bool same_order = world->size() == 2 && (stage == 1 ? backwards == 1 : accumulation * backwards == 1);
      if (same_order) expect(apart == 0, what + ", bitwise was expected");
      expect(apart < (dtype == "fp32" ? 1e-6 : 2e-2), what);
      ranks::same(sharded.skipped, plain.skipped, what + ", skipped steps");
      if (dtype == "fp16") expect(plain.skipped > 0, "some steps overflow");
      const auto norm = sharded.engine->get_global_grad_norm(), plain_norm = plain.engine->get_global_grad_norm();
      expect(norm.has_value() == plain_norm.has_value(), what + ", skipped last step");
      if (norm) expect(std::abs(*norm / *plain_norm - 1) < (dtype == "fp32" ? 1e-6 : 0.05), what + ", norm");
      // The parameters in use are the masters, rounded, on every rank.
      gannet::zero::GatheredParameters whole(*sharded.engine, sharded.model->parameters());
      for (const auto& [name, master] : sharded.engine->fp32_parameters())
        expect(torch::equal(sharded.model->named_parameters()[name].detach(),
                            master.to(sharded.model->named_parameters()[name].scalar_type())),
               what + ", published " + name);
    }
}

TEST(Stages, TrainAsStage0Does) {
  for (const int ranks : {2, 3})
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      if (ranks == 3 && std::string(dtype) != "fp32" && !ranks::is_full()) continue;
      ranks::expect_all_succeed(
          run_ranks("stages_agree", ranks, {.environment = {{"DTYPE", dtype}, {"ACCUMULATION", "1"}, {"BACKWARDS", "1"}}}));
    }
}
TEST(Stages, AccumulateAndTakeSeveralBackwardsAsStage0Does) {
  ranks::expect_all_succeed(
      run_ranks("stages_agree", 2, {.environment = {{"DTYPE", "fp32"}, {"ACCUMULATION", "3"}, {"BACKWARDS", "1"}}}));
  ranks::expect_all_succeed(
      run_ranks("stages_agree", 4, {.environment = {{"DTYPE", "fp32"}, {"ACCUMULATION", "2"}, {"BACKWARDS", "2"}}}));
  ranks::expect_all_succeed(
      run_ranks("stages_agree", 2, {.environment = {{"DTYPE", "bf16"}, {"ACCUMULATION", "2"}, {"BACKWARDS", "1"}}}));
}

RANK_BODY(repeats) {
  for (const int64_t stage : {2, 3}) {
    const auto once = [&] {
      Run run(zero_config(stage, 400, "bf16", 2));
      run.train(0, 6);
      return run.parameters();
    };
    expect(torch::equal(once(), once()), "twice the same run");
  }
}
TEST(Stages, ARunRepeatsBitwise) { ranks::expect_all_succeed(run_ranks("repeats", 4)); }

// An optimizer that needs sums over whole tensors, which are spread over several ranks.
RANK_BODY(tensor_sums) {
  const auto run = [](int64_t stage) {
    Dict config = zero_config(stage, 400, "fp32", 1);
    config["optimizer"] = Dict{{"type", "Sums"}, {"params", Dict{{"lr", 0.01}}}};
    config["plugins"] = Dict{{"path", gannet::List{Value(PROBE_PLUGIN)}}};
    auto model = make_net(1, 37);
    auto engine = gannet::initialize(model, {.config = config}).engine;
    for (int64_t step = 0; step < 5; ++step) {
      auto [x, y] = make_batch(step * engine->world_size() + engine->rank(), 4);
      engine->backward(engine->forward(x, y));
      engine->step();
    }
    gannet::zero::GatheredParameters whole(*engine, model->parameters());
    return flat_parameters(*model);
  };
  for (const int64_t stage : {1, 2, 3}) expect(difference(run(stage), run(0)) < 1e-6, "stage " + std::to_string(stage));
}
TEST(Stages, SumsOfTensorsGoOverTheRanks) { ranks::expect_all_succeed(run_ranks("tensor_sums", 3)); }

// Bytes handed to the transport for a step: 2 P (N-1) / N elements, padding aside.
RANK_BODY(wire) {
  auto world = gannet::init_distributed({.timeout_seconds = 60});
  for (const int64_t stage : {0, 1, 2}) {
    Dict config = zero_config(stage, 500'000'000, "bf16", 1);
    auto engine = gannet::initialize(make_net(1, 400), {.config = config}).engine;
    const auto step = [&](int64_t index) {
      auto [x, y] = make_batch(index * world->size() + world->rank(), 4);
      engine->backward(engine->forward(x, y));
      engine->step();
    };
    step(0);
    auto& comm = world->links().device().comm();
    const auto before = comm.counters();
    step(1);
    const double sent = static_cast<double>(comm.counters().bytes_sent - before.bytes_sent);
    const double parameters = 8 * 400 + 400 + 400 * 4 + 4, ranks = world->size();
    const double formula = 2 * parameters * 2 * (ranks - 1) / ranks;
    expect(sent >= formula && sent < 1.05 * formula + 64, "stage " + std::to_string(stage) + " sends " + std::to_string(sent) +
                                                              " bytes, the formula says " + std::to_string(formula));
  }
}
TEST(Stages, SendWhatTheFormulaSays) {
  for (const int ranks : {2, 4}) ranks::expect_all_succeed(run_ranks("wire", ranks));
}

RANK_BODY(overflow_is_named_alike) {
  auto world = gannet::init_distributed({.timeout_seconds = 60});
  for (const int64_t stage : {1, 2, 3}) {
    Run run(zero_config(stage, 400, "fp16", 1));
    auto [x, y] = make_batch(world->rank(), 4);
    if (world->rank() == 1) y = y * 1e30;  // one rank's loss overflows
    run.engine->backward(run.engine->forward(x, y));
    const auto result = run.engine->step();
    expect(!result.applied && result.boundary, "the step is skipped");
    expect(result.reason.find("the gradient of '") != std::string::npos, result.reason);
    const auto all = world->world()->links().host.gather_texts(result.reason);
    for (const auto& reason : all) ranks::same(reason, all[0], "every rank's reason");
  }
}
TEST(Stages, AnOverflowIsNamedAlikeOnEveryRank) { ranks::expect_all_succeed(run_ranks("overflow_is_named_alike", 3)); }

// Broken off in its middle: some gradients are gathered and some are not.
RANK_BODY(a_backward_that_throws) {
  for (const int64_t stage : {0, 1, 2, 3}) {
    Run run(zero_config(stage, 400, "fp32", 1)), plain(zero_config(stage, 400, "fp32", 1));
    auto [x, y] = make_batch(run.engine->rank(), 4);
    auto loss = run.engine->forward(x, y);
    bool throws = true;
    run.model->middle->weight.register_hook([&](const at::Tensor&) {
      if (throws) throw std::runtime_error("thrown in backward");
    });
    const auto backward = [&] {
      try {
        run.engine->backward(run.engine->forward(x, y));
      } catch (const gannet::Error& error) {
        return error.code() == gannet::ErrorCode::kOrder ? 1 : 2;
      } catch (const std::exception&) {
        return 3;
      }
      return 0;
    };
    ranks::same(backward(), 3, "what the program threw comes out");
    throws = false;
    for (Run* one : {&run, &plain}) one->train(0, 3);
    expect(torch::equal(run.parameters(), plain.parameters()),
           "nothing is left of it: the next micro-batch is the first of its step");
  }
}
TEST(Stages, ABackwardThatThrowsLeavesNothingBehind) { ranks::expect_all_succeed(run_ranks("a_backward_that_throws", 2)); }

RANK_BODY(refusals) {
  Run run(zero_config(2, 400, "fp32", 1));
  const auto code_of = [](auto&& body) {
    try {
      body();
    } catch (const gannet::Error& error) {
      return error.code();
    }
    return gannet::ErrorCode::kInternal;
  };
  expect(code_of([&] { run.engine->no_sync(); }) == gannet::ErrorCode::kUnsupported, "no_sync at stage 2");
  auto model = make_net();
  struct Own : torch::optim::SGD {  // the engine does not know its rule
    using SGD::SGD;
  };
  auto optimizer = std::make_shared<Own>(model->parameters(), torch::optim::SGDOptions(0.1));
  expect(code_of([&] { gannet::initialize(model, {.config = zero_config(1, 400, "fp32", 1), .optimizer = optimizer}); }) ==
             gannet::ErrorCode::kUnsupported,
         "an optimizer of the program's own class at stage 1");
}
TEST(Stages, WhatTheyCannotDoIsAnError) { ranks::expect_all_succeed(run_ranks("refusals", 2)); }

// ---- Checkpoints ---------------------------------------------------------------------------------------------------------

Dict checkpoint_config(int64_t stage) {
  // The total batch is the same for any number of ranks.
  Dict config = zero_config(stage, 400, variable("DTYPE"), 1);
  config["train_batch_size"] = 24;
  config["train_micro_batch_size_per_gpu"] = 4;
  config["gradient_accumulation_steps"] = "auto";
  return config;
}

RANK_BODY(saves) {
  Run run(checkpoint_config(number("STAGE")));
  run.train(0, 5);
  run.engine->save_checkpoint(variable("FOLDER"), {.tag = "saved"});
}
// Loads, and saves again at once: the same tensors, bit by bit. Then goes on.
RANK_BODY(loads) {
  Run run(checkpoint_config(number("STAGE")));
  run.train(0, 1);
  const auto receipt = run.engine->load_checkpoint(variable("FOLDER"), {.tag = "saved"});
  expect(receipt.loaded && receipt.states > 0, "loaded");
  run.engine->save_checkpoint(variable("FOLDER"), {.tag = "again" + variable("NAME"), .save_latest = false});
  run.train(5, 3);
  run.engine->save_checkpoint(variable("FOLDER"), {.tag = "after" + variable("NAME"), .save_latest = false});
}

TEST(Stages, ACheckpointLoadsAtEveryStageAndNumberOfRanks) {
  const std::string folder = std::filesystem::temp_directory_path() / ("gannet-zero-" + std::to_string(::getpid()));
  size_t turn = 0;
  for (const char* dtype : {"fp32", "bf16"})
    for (const auto& [stage, ranks] : {std::pair{0, 2}, {1, 3}, {2, 2}, {3, 3}}) {
      ++turn;
      std::filesystem::remove_all(folder);
      const auto with = [&](int64_t its_stage, const std::string& name) {
        return ranks::Options{
            .environment = {{"DTYPE", dtype}, {"STAGE", std::to_string(its_stage)}, {"FOLDER", folder}, {"NAME", name}}};
      };
      ranks::expect_all_succeed(run_ranks("saves", ranks, with(stage, "")));
      const auto saved = tensors_of(folder, "saved");
      ASSERT_FALSE(saved.empty());
      std::map<std::string, at::Tensor> after;
      size_t place = 0;
      for (const auto& [other_stage, other_ranks] : {std::pair{2, 3}, {3, 2}, {0, 1}, {3, 1}, {1, 3}}) {
        if ((turn + place++) % 3 != 0 && !ranks::is_full()) continue;  // all pairs of stages in both dtypes, in turn
        const std::string name = std::to_string(other_stage) + "on" + std::to_string(other_ranks);
        SCOPED_TRACE(std::string(dtype) + ", saved at stage " + std::to_string(stage) + " on " + std::to_string(ranks) +
                     ", loaded at " + name);
        ranks::expect_all_succeed(run_ranks("loads", other_ranks, with(other_stage, name)));
        const auto again = tensors_of(folder, "again" + name);
        ASSERT_EQ(again.size(), saved.size());
        for (const auto& [tensor, values] : saved) EXPECT_TRUE(at::equal(again.at(tensor), values)) << tensor;
        const auto now = tensors_of(folder, "after" + name);
        if (after.empty()) after = now;
        if (std::string(dtype) != "fp32") continue;
        for (const auto& [tensor, values] : now)
          if (tensor.starts_with("parameter/") && values.numel() > 0)
            EXPECT_LT(difference(values.to(at::kDouble), after.at(tensor).to(at::kDouble)), 0.02) << tensor;
      }
    }
  std::filesystem::remove_all(folder);
}

// Between two micro-batches of a step: sharded sums of gradients are part of what is saved.
RANK_BODY(resumes_between_boundaries) {
  const std::string folder = variable("FOLDER");
  Dict config = zero_config(number("STAGE"), 400, "fp32", 2);
  const auto micro_batch = [](Run& run, int64_t index) {
    auto [x, y] = make_batch(index * run.engine->world_size() + run.engine->rank(), 4);
    run.engine->backward(run.engine->forward(x, y));
    run.engine->step();
  };
  Run straight(config);
  for (int64_t i = 0; i < 5; ++i) micro_batch(straight, i);
  straight.engine->save_checkpoint(folder);
  Run resumed(config);
  resumed.engine->load_checkpoint(folder);
  for (int64_t i = 5; i < 8; ++i) {
    micro_batch(straight, i);
    micro_batch(resumed, i);
  }
  expect(torch::equal(straight.parameters(), resumed.parameters()), "bitwise");
}
TEST(Stages, ASaveBetweenTwoBoundariesKeepsTheSums) {
  const std::string folder = std::filesystem::temp_directory_path() / ("gannet-zero-between-" + std::to_string(::getpid()));
  for (const char* stage : {"2", "3"}) {
    ranks::expect_all_succeed(
        run_ranks("resumes_between_boundaries", 2, {.environment = {{"FOLDER", folder}, {"STAGE", stage}}}));
    std::filesystem::remove_all(folder);
  }
}

}  // namespace
