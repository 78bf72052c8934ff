// Checkpoints of ZeroOneAdam: a resume on the same number of ranks continues bit for bit from any
// step; on another number every rank begins at the mean; weights that are loaded without states are
// the same on all ranks.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include "checkpoint/export.h"
#include "plugin/support.h"
#include "zero/zero_one_support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

at::Tensor shard_state(gannet::EngineBase& engine, const std::string& state) {
  std::vector<at::Tensor> parts;
  for (const auto& name : engine.parameter_names())
    parts.push_back(engine.local_optimizer_state(name, state).values.flatten().clone());
  return torch::cat(parts);
}

// Between updates of the variance, at the freeze, at an average, and after one and three local steps.
RANK_BODY(zero_one_resumes_bitwise) {
  auto world = gannet::test::world();
  const std::string folder = variable("FOLDER") + "/resume" + std::to_string(world->size());
  for (const bool bf16 : {false, true})
    for (const int64_t saved : {5, 12, 28, 29, 31}) {
      if (!ranks::is_full() && (bf16 != (saved + world->size() / 2) % 2 || (world->size() == 4 && saved < 28))) continue;
      const std::string tag = std::string(bf16 ? "bf16-" : "fp32-") + std::to_string(saved);
      const auto made = [&] { return gannet::initialize(make_uneven(), {.config = zero_one_config(bf16)}).engine; };
      auto straight = made();
      train_accumulated(*straight, saved);
      const at::Tensor at_save = own_masters(*straight);
      train_accumulated(*straight, 10);
      const at::Tensor expected = own_masters(*straight), momenta = shard_state(*straight, "exp_avg");
      straight.reset();
      auto before = made();
      train_accumulated(*before, saved);
      before->save_checkpoint(folder, {.tag = tag});
      before.reset();
      auto after = made();
      if (saved == 29) train_accumulated(*after, 3);  // something to be replaced
      const auto receipt = after->load_checkpoint(folder, {.tag = tag});
      expect(receipt.to_string().find("mean") == std::string::npos, "nothing to tell: " + receipt.to_string());
      expect(torch::equal(own_masters(*after), at_save), tag + ": each rank has its own parameters again");
      train_accumulated(*after, 10);
      expect(torch::equal(own_masters(*after), expected), tag + " is the same to the bit");
      expect(torch::equal(shard_state(*after, "exp_avg"), momenta), tag + ", and so are the momenta");
    }
}

RANK_BODY(zero_one_saves) {
  auto world = gannet::test::world();
  auto engine = gannet::initialize(make_uneven(), {.config = zero_one_config()}).engine;
  train_accumulated(*engine, 28);
  const at::Tensor common = own_masters(*engine);
  train_accumulated(*engine, 3);
  const std::string folder = variable("FOLDER") + "/ranks";
  engine->save_checkpoint(folder, {.tag = "local"});
  const at::Tensor own = own_masters(*engine);
  if (world->rank() == 0) {
    const auto saved = all_of(folder, "local");
    int64_t at = 0;
    for (const auto& name : engine->parameter_names()) {
      const at::Tensor& weights = saved.at("parameter/" + name);
      expect(torch::equal(weights.flatten(), common.narrow(0, at, weights.numel())), name + " has the common weights");
      expect(torch::equal(saved.at("rank_parameter/0/" + name).flatten(), own.narrow(0, at, weights.numel())),
             name + " of rank 0 beside them");
      for (uint32_t r = 0; r < world->size(); ++r)
        for (const std::string kept :
             {"rank_state/" + std::to_string(r) + "/exp_avg/", "rank_parameter/" + std::to_string(r) + "/"})
          expect(saved.count(kept + name) == 1, kept + name);
      expect(saved.count("state/exp_avg/" + name) == 0, "exp_avg is each rank's");
      at += weights.numel();
    }
    auto weights = make_uneven();  // for inference
    const std::string exported = variable("FOLDER") + "/exported";
    gannet::checkpoint::export_model(gannet::checkpoint::open(folder, {.tag = "local"}), exported, {});
    for (const std::string& source : {folder, exported}) {
      for (const auto& parameter : weights->parameters()) parameter.detach().zero_();
      gannet::load_weights(*weights, source);
      at = 0;
      for (const auto& parameter : weights->parameters()) {
        expect(torch::equal(parameter.detach().flatten(), common.narrow(0, at, parameter.numel())), "load_weights of " + source);
        at += parameter.numel();
      }
    }
  }
  auto other = gannet::initialize(make_uneven(), {.config = zero_one_config()}).engine;
  other->load_checkpoint(folder, {.tag = "local", .load_module_only = true});
  expect(torch::equal(own_masters(*other), common), "load_module_only takes the common weights");
  auto fresh = gannet::initialize(make_uneven(), {.config = zero_one_config()}).engine;
  fresh->load_checkpoint(folder, {.tag = "local", .load_optimizer_states = false, .lock_folder = false});
  expect(torch::equal(own_masters(*fresh), common) && !fresh->parameters_differ(), "so does a load without states");
  train_accumulated(*fresh, 2);
  // With other params, under which update 31 averages.
  auto changed = gannet::initialize(make_uneven(), {.config = zero_one_config(false, Dict{{"local_step_clipper", 1}})}).engine;
  const auto receipt = changed->load_checkpoint(folder, {.tag = "local", .lock_folder = false});
  const std::string n = std::to_string(world->size());
  contains(receipt.to_string(), "exp_avg, parameters: the mean over the " + n + " ranks that saved theirs, on each of " + n);
  expect(!changed->parameters_differ() && is_same_on_all(*changed, own_masters(*changed)), "all have the mean");
  train_accumulated(*changed, 3);
  expect(is_same_on_all(*changed, own_masters(*changed)), "and stay together");
  // A save in the background.
  Dict config = zero_one_config();
  config["gannet"] = Dict{{"checkpoint", Dict{{"async", true}}}};
  auto background = gannet::initialize(make_uneven(), {.config = config}).engine;
  background->load_checkpoint(folder, {.tag = "local", .lock_folder = false});
  background->save_checkpoint(folder + "-again", {.tag = "again"});
  train_accumulated(*background, 2);
  background->wait_for_checkpoint();
  if (world->rank() > 0) return;
  const auto first = all_of(folder, "local"), second = all_of(folder + "-again", "again");
  for (const auto& [name, values] : first)
    if (!name.starts_with("rng/"))
      expect(second.count(name) == 1 && torch::equal(second.at(name), values), name + " is the same");
}

RANK_BODY(zero_one_loads_at_another_number) {
  auto world = gannet::test::world();
  const std::string folder = variable("FOLDER") + "/ranks";
  auto engine = gannet::initialize(make_uneven(), {.config = zero_one_config()}).engine;
  const auto receipt = engine->load_checkpoint(folder, {.tag = "local"});
  contains(receipt.to_string(), "exp_avg, parameters, worker_error: the mean over the 4 ranks that saved theirs, on each of " +
                                    std::to_string(world->size()) + " ranks");
  const auto saved = all_of(folder, "local");
  for (const auto& name : engine->parameter_names()) {
    at::Tensor masters = torch::zeros_like(saved.at("parameter/" + name), torch::kDouble), momenta = masters.clone();
    for (int r = 0; r < 4; ++r) {
      masters += saved.at("rank_parameter/" + std::to_string(r) + "/" + name).to(torch::kDouble) / 4;
      momenta += saved.at("rank_state/" + std::to_string(r) + "/exp_avg/" + name).to(torch::kDouble) / 4;
    }
    expect(difference(engine->local_fp32_parameter(name).values.flatten(), masters.flatten()) < 1e-6, name + " is the mean");
    expect(difference(engine->local_optimizer_state(name, "exp_avg").values.flatten(), momenta.flatten()) < 1e-6,
           "its momentum too");
  }
  expect(is_same_on_all(*engine, own_masters(*engine)), "on all ranks");
  train_accumulated(*engine, 4);
  expect(engine->parameters_differ() == (world->size() > 1), "35 is local");
  train_accumulated(*engine, 1);
  expect(is_same_on_all(*engine, own_masters(*engine)), "36 averages");
  expect(own_masters(*engine).isfinite().all().item<bool>(), "it trains on");
}

class ZeroOneCheckpoint : public testing::Test {
 protected:
  void run(const std::string& body, int ranks) {
    ranks::expect_all_succeed(run_ranks(body, ranks, {.environment = {{"FOLDER", folder_.string()}}}));
  }
  const TemporaryFolder folder_;
};

TEST_F(ZeroOneCheckpoint, ResumesBitwiseInEachPhase) {
  run("zero_one_resumes_bitwise", 1);
  run("zero_one_resumes_bitwise", 2);
  run("zero_one_resumes_bitwise", 4);
}
TEST_F(ZeroOneCheckpoint, ResumesAtAnotherNumberOfRanks) {
  run("zero_one_saves", 4);
  run("zero_one_loads_at_another_number", 2);
  run("zero_one_loads_at_another_number", 1);
}

}  // namespace
