// Checkpoints of the 1-bit optimizers hold the errors of the compression, with which a resume
// continues bit for bit.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include "plugin/support.h"
#include "zero/onebit_support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

// The inputs of all ranks (momenta and previous errors) equal their results plus the remaining
// errors.
RANK_BODY(nothing_is_lost) {
  auto world = gannet::test::world();
  const std::string folder = variable("FOLDER") + "/lost";
  auto engine = gannet::initialize(make_uneven(), {.config = config_of(false, {}, 0.0)}).engine;
  train_accumulated(*engine, kFreezeStep + 2);
  engine->save_checkpoint(folder, {.tag = "before"});
  std::map<std::string, at::Tensor> gradients;
  for (int64_t micro = 0; micro < 2; ++micro) {
    auto [x, y] = batch_of(engine->global_steps(), micro, engine->rank(), engine->world_size());
    engine->backward(engine->forward(x, y));
    if (micro == 1)
      for (const auto& name : engine->parameter_names()) gradients[name] = engine->full_gradient(name);
    engine->step();
  }
  engine->save_checkpoint(folder, {.tag = "after"});
  if (world->rank() > 0) return;
  const auto before = all_of(folder, "before"), after = all_of(folder, "after");
  const auto errors = [&](const std::map<std::string, at::Tensor>& saved, const std::string& name) {
    at::Tensor sum = saved.at("state/server_error/" + name).to(torch::kDouble);
    for (uint32_t r = 0; r < world->size(); ++r)
      sum = sum + saved.at("rank_state/" + std::to_string(r) + "/worker_error/" + name).to(torch::kDouble) / world->size();
    return sum;
  };
  for (const auto& [name, gradient] : gradients) {
    const at::Tensor momentum = before.at("state/exp_avg/" + name).to(torch::kDouble);
    const at::Tensor to_send = 0.9 * momentum + 0.1 * gradient.to(torch::kDouble) + errors(before, name);
    const at::Tensor sent = after.at("state/exp_avg/" + name).to(torch::kDouble);
    // Elements that no gradient reached until the freeze are left out of the momentum.
    const at::Tensor is_used = after.at("state/exp_avg_sq/" + name) > 0;
    const double off = difference((sent + errors(after, name)).masked_select(is_used), to_send.masked_select(is_used));
    expect(off < 1e-6, name + " loses " + std::to_string(off));
    expect(errors(after, name).norm().item<double>() > 1e-3 * sent.norm().item<double>(), name + " has an error");
  }
}

RANK_BODY(resumes_bitwise) {
  auto world = gannet::test::world();
  const std::string folder = variable("FOLDER") + "/resume" + std::to_string(world->size());
  for (const char* type : {"OneBitAdam", "OneBitLamb"})
    for (const bool bf16 : {false, true}) {
      const std::string tag = std::string(type) + (bf16 ? "-bf16" : "-fp32");
      const auto made = [&] { return gannet::initialize(make_uneven(), {.config = config_of(bf16, {}, 0.05, type)}).engine; };
      auto straight = made();
      train_accumulated(*straight, kFreezeStep + 5);
      const at::Tensor expected = parameters_of(*straight);
      straight.reset();
      auto before = made();
      train_accumulated(*before, kFreezeStep + 2);
      before->save_checkpoint(folder, {.tag = tag});
      before.reset();
      auto after = made();
      const auto receipt = after->load_checkpoint(folder, {.tag = tag});
      expect(receipt.to_string().find("worker_error") == std::string::npos, "nothing to tell: " + receipt.to_string());
      train_accumulated(*after, 3);
      expect(torch::equal(parameters_of(*after), expected), tag + " is the same to the bit");
    }
}

RANK_BODY(saves) {
  auto world = gannet::test::world();
  auto engine = gannet::initialize(make_uneven(), {.config = config_of()}).engine;
  train_accumulated(*engine, kFreezeStep + 2);
  engine->save_checkpoint(variable("FOLDER") + "/ranks", {.tag = "first"});
}

RANK_BODY(loads_at_another_number) {
  auto world = gannet::test::world();
  const std::string folder = variable("FOLDER") + "/ranks";
  auto engine = gannet::initialize(make_uneven(), {.config = config_of()}).engine;
  const auto receipt = engine->load_checkpoint(folder, {.tag = "first"});
  contains(receipt.to_string(),
           "worker_error: the mean over the 4 ranks that saved theirs, on each of " + std::to_string(world->size()) + " ranks");
  engine->save_checkpoint(folder, {.tag = "second"});
  if (world->rank() == 0) {
    const auto first = all_of(folder, "first"), second = all_of(folder, "second");
    for (const auto& name : engine->parameter_names()) {
      at::Tensor mean = torch::zeros_like(first.at("parameter/" + name), torch::kDouble);
      for (int r = 0; r < 4; ++r)
        mean += first.at("rank_state/" + std::to_string(r) + "/worker_error/" + name).to(torch::kDouble) / 4;
      for (uint32_t r = 0; r < world->size(); ++r)
        expect(difference(second.at("rank_state/" + std::to_string(r) + "/worker_error/" + name), mean) < 1e-6,
               name + " has the mean");
      for (const char* state : {"exp_avg", "exp_avg_sq", "server_error"})
        expect(torch::equal(first.at("state/" + (state + ("/" + name))), second.at("state/" + (state + ("/" + name)))),
               std::string(state) + " of " + name);
    }
  }
  train_accumulated(*engine, 2);
  expect(parameters_of(*engine).isfinite().all().item<bool>(), "it trains on");
}

class OneBitCheckpoint : public testing::Test {
 protected:
  void run(const std::string& body, int ranks) {
    ranks::expect_all_succeed(run_ranks(body, ranks, {.environment = {{"FOLDER", folder_.string()}}}));
  }
  const TemporaryFolder folder_;
};

TEST_F(OneBitCheckpoint, LosesNothingOnTwoRanks) { run("nothing_is_lost", 2); }
TEST_F(OneBitCheckpoint, LosesNothingOnFourRanks) { run("nothing_is_lost", 4); }
TEST_F(OneBitCheckpoint, ResumesBitwiseInTheCompressedPhase) {
  run("resumes_bitwise", 1);
  run("resumes_bitwise", 2);
  run("resumes_bitwise", 4);
}
TEST_F(OneBitCheckpoint, ResumesAtAnotherNumberOfRanks) {
  run("saves", 4);
  run("loads_at_another_number", 2);
  run("loads_at_another_number", 1);
}

}  // namespace
