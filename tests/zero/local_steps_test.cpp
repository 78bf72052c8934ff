// ZeroOneAdam through the engine: its formulas on 1, 2 and 4 ranks against a plain reference, what it sends in which step, what
// the program sees while the ranks have different parameters, and what is refused.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "plugin/support.h"
#include "zero/zero_one_reference.h"
#include "zero/zero_one_support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::List;
using ranks::expect;
using ranks::run_ranks;
using ranks::same;

// Both micro-batches of every rank, with only autograd, at the rank's own parameters.
std::vector<std::vector<at::Tensor>> gradients_of(UnevenImpl& model, const ZeroOneReference& reference, int64_t step) {
  std::vector<std::vector<at::Tensor>> all;
  const auto ranks = static_cast<int64_t>(reference.masters.size());
  for (int64_t rank = 0; rank < ranks; ++rank) {
    auto parameters = model.parameters();
    {
      const torch::NoGradGuard no_grad;
      for (size_t p = 0; p < parameters.size(); ++p)
        parameters[p].copy_(reference.masters[static_cast<size_t>(rank)][p].view(parameters[p].sizes()));
    }
    model.zero_grad();
    for (int64_t micro = 0; micro < 2; ++micro) {
      auto [x, y] = batch_of(step, micro, rank, ranks);
      model.forward(x, y).backward(torch::full({}, 0.5, model.first->weight.scalar_type()));
    }
    auto& own = all.emplace_back();
    for (const at::Tensor& parameter : parameters) own.push_back(parameter.grad().clone());
  }
  return all;
}

// The reference takes over the engine's numbers: those of all ranks.
void take_over(gannet::EngineBase& engine, ZeroOneReference& reference) {
  const std::vector<std::string> names = engine.parameter_names();
  for (size_t p = 0; p < names.size(); ++p) {
    const at::Tensor masters = of_ranks(engine, engine.local_fp32_parameter(names[p]).values.flatten().clone());
    const at::Tensor momenta = of_ranks(engine, engine.local_optimizer_state(names[p], "exp_avg").values.flatten().clone());
    for (size_t r = 0; r < reference.masters.size(); ++r) {
      reference.masters[r][p] = masters[static_cast<int64_t>(r)].clone();
      reference.exp_avg[r][p] = momenta[static_cast<int64_t>(r)].clone();
    }
    reference.exp_avg_sq[p] = engine.full_optimizer_state(names[p], "exp_avg_sq").flatten().clone();
    reference.common[p] = engine.parameters_differ() ? engine.full_optimizer_state(names[p], "common_param").flatten().clone()
                                                     : reference.masters[0][p].clone();
  }
}
// And the errors of the compression, which a checkpoint has.
void take_over_errors(gannet::EngineBase& engine, ZeroOneReference& reference) {
  const std::string folder = variable("FOLDER") + "/errors" + std::to_string(engine.world_size());
  engine.save_checkpoint(folder, {.tag = "errors"});
  const auto saved = all_of(folder, "errors");
  const std::vector<std::string> names = engine.parameter_names();
  for (size_t p = 0; p < names.size(); ++p) {
    OneBitAverage& average = reference.averages[p];
    average.server_error.copy_(saved.at("state/server_error/" + names[p]).flatten());
    for (size_t r = 0; r < average.worker_error.size(); ++r)
      average.worker_error[r].copy_(saved.at("rank_state/" + std::to_string(r) + "/worker_error/" + names[p]).flatten());
  }
}

void follow_zero_one(bool bf16, int64_t steps) {
  Dict config = zero_one_config(bf16, Dict{{"var_freeze_step", steps * 3 / 10}, {"local_step_scaler", steps / 5}});
  config["scheduler"] = Dict{
      {"type", "WarmupLR"},
      {"params",
       Dict{{"warmup_max_lr", 1e-3}, {"warmup_min_lr", 2e-4}, {"warmup_num_steps", steps * 3 / 4}, {"warmup_type", "linear"}}}};
  auto engine = gannet::initialize(make_uneven(), {.config = config}).engine;
  const int64_t size = engine->world_size();
  auto model = make_uneven();
  ZeroOneReference reference(model->parameters(), {.ranks = size,
                                                   .counters = {steps * 3 / 10, kVarUpdateScaler, steps / 5, kLocalStepClipper},
                                                   .weight_decay = 0.1,
                                                   .clipping = 0.05});
  if (bf16) model->to(torch::kBFloat16);
  const auto average = [&](const std::vector<at::Tensor>& of_ranks) {  // added in fp32, kept in the gradient's type
    at::Tensor sum = of_ranks[0].to(torch::kFloat);
    for (size_t r = 1; r < of_ranks.size(); ++r) sum = sum + of_ranks[r].to(torch::kFloat);
    return sum.to(of_ranks[0].scalar_type()).to(torch::kFloat) / static_cast<double>(size);
  };
  int64_t apart = 0, averaged = 0, flips = 0;
  double largest = 0;
  for (int64_t step = 0; step < steps; ++step) {
    if (bf16 && step > 0) take_over(*engine, reference);  // see onebit_test.cpp
    reference.step(gradients_of(*model, reference, step), engine->get_lr()[0], average);
    train_accumulated(*engine, 1);
    const std::string where = std::string(bf16 ? "in bf16, step " : "in fp32, step ") + std::to_string(step + 1);
    const double norm = *engine->get_global_grad_norm();
    expect(std::abs(norm - reference.norm) <= (bf16 ? 1e-2 : 1e-4) * reference.norm,
           where + ": norm " + std::to_string(norm) + ", reference " + std::to_string(reference.norm));
    const at::Tensor found = own_masters(*engine), expected = torch::cat(reference.masters[engine->rank()]);
    // A compressed value within a rounding of zero may get the other sign, in a few elements: the
    // runs diverge from there on, unless the reference takes over the engine's numbers.
    const double off = difference(found, expected);
    const double share = (found - expected).abs().gt(2e-5).to(torch::kDouble).mean().item<double>();
    const double anywhere = of_ranks(*engine, torch::full({1}, share)).max().item<double>();
    expect(anywhere < 1e-3, where + ": a share of " + std::to_string(anywhere) + " of the elements is off");
    if (anywhere > 0) {
      ++flips;
      take_over(*engine, reference);
      take_over_errors(*engine, reference);
    } else {
      largest = std::max(largest, off);
      expect(off < (bf16 ? 1e-6 : 2e-5), where + " is off by " + std::to_string(off * 1e9) + "e-9");
    }
    const bool differs = size > 1 && reference.counters.is_local && !reference.counters.averages_updates;
    same(engine->parameters_differ(), differs, where + ": whether the ranks differ");
    same(is_same_on_all(*engine, found), !differs, where + ": whether they are the same");
    expect(is_same_on_all(*engine, parameters_of(*engine)), where + ": fp32_parameters");
    if (differs) expect(difference(parameters_of(*engine), torch::cat(reference.common)) < 2e-5, where + ": the common weights");
    apart += differs;
    averaged += reference.counters.averages_updates;
  }
  expect(flips <= (size == 1 ? 0 : steps / 10), std::to_string(flips) + " steps had an element with another sign");
  expect(size == 1 || (apart > steps / 4 && averaged > steps / 5), "both kinds of steps");
  if (engine->rank() == 0)
    std::printf("%s, %d ranks: %d steps, off by at most %.3g, other signs in %d steps\n", bf16 ? "bf16" : "fp32",
                static_cast<int>(size), static_cast<int>(steps), largest, static_cast<int>(flips));
}

RANK_BODY(zero_one_formulas) {
  auto world = gannet::test::world();
  // Four ranks have two cores to run on; 60 steps hold every phase.
  follow_zero_one(false, world->size() < 4 || ranks::is_full() ? 200 : 60);
  follow_zero_one(true, 40);
}

RANK_BODY(zero_one_repeats) {
  auto world = gannet::test::world();
  at::Tensor first;
  for (int run = 0; run < 2; ++run) {
    auto engine = gannet::initialize(make_uneven(), {.config = zero_one_config(true)}).engine;
    train_accumulated(*engine, 31);
    expect(engine->parameters_differ(), "after a local step");
    if (run == 0)
      first = own_masters(*engine);
    else
      expect(torch::equal(own_masters(*engine), first), "a second run is the same to the bit");
  }
}

// Each kind of step by the bytes that a rank sends in it, beside the two numbers of the norm: counted by the Comm, and in the
// metrics file.
RANK_BODY(zero_one_sends) {
  auto world = gannet::test::world();
  const std::string path = variable("FOLDER") + "/metrics" + std::to_string(world->size()) + ".jsonl";
  Dict config = zero_one_config(true, {}, 1.0);
  config["zero_optimization"] = Dict{{"stage", 0}};
  config["gradient_accumulation_steps"] = 1;
  config["gannet"] = Dict{{"fingerprint_every", 0}, {"metrics", Dict{{"path", path}}}};
  const auto n = static_cast<double>(world->size());
  const double parameters = 8 * 20'000 + 20'000 + 20'000 * 4 + 4;
  const double whole = 2 * 4 * parameters * (n - 1) / n, signs = parameters / 4 * (n - 1) / n;
  const double scales = 2 * 4 * 4 * (n - 1) + 32 * (4 + n) / 4;  // of at most 4 tensors, both phases, and padding
  const double numbers = 256 * n;                                // the norm's, and those of the metrics file
  double of_local_steps = 0;                                     // the most that one sent
  ZeroOneCounters counters{kVarFreezeStep, kVarUpdateScaler, kLocalStepScaler, kLocalStepClipper};
  std::vector<double> expected;
  {
    auto engine = gannet::initialize(make_net(1, 20'000), {.config = config}).engine;
    auto& comm = world->links().device().comm();
    for (int64_t step = 0; step < 30; ++step) {
      counters.begin();
      const bool is_local = counters.is_local && !counters.averages_updates;
      expected.push_back(counters.updates_variance ? whole : is_local ? 0 : signs);
      auto [x, y] = make_batch(step * world->size() + world->rank(), 4);
      const uint64_t before = comm.counters().bytes_sent;
      engine->backward(engine->forward(x, y));
      engine->step();
      const auto sent = static_cast<double>(comm.counters().bytes_sent - before);
      expect(sent >= 0.999 * expected.back() && sent <= 1.01 * expected.back() + (is_local ? 0 : scales) + numbers,
             "step " + std::to_string(step + 1) + " sends " + std::to_string(sent) + " bytes, of " +
                 std::to_string(expected.back()));
      if (is_local) of_local_steps = std::max(of_local_steps, sent);
      counters.end();
    }
  }
  if (world->rank() > 0) return;
  std::printf("%d ranks: a local step sends %.0f bytes, one with signs %.0f, one in full %.0f\n", static_cast<int>(n),
              of_local_steps, signs, whole);
  std::ifstream file(path);
  size_t step = 0;
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find("\"comm_bytes\"");
    if (at == line.npos) continue;
    const double sent = std::stod(line.substr(line.find_first_of("0123456789", at))) / n;  // of all ranks
    expect(sent >= 0.999 * expected.at(step) && sent <= 1.01 * expected.at(step) + scales + 2 * numbers,
           "the metrics of step " + std::to_string(step + 1) + " say " + std::to_string(sent) + ", of " +
               std::to_string(expected.at(step)));
    ++step;
  }
  same(step, expected.size(), "steps in the metrics file");
}

// Also in local steps.
RANK_BODY(zero_one_overflow) {
  auto world = gannet::test::world();
  const auto engine =
      skip_one_step(zero_one_config(), 25, 3, [](auto& trained) { expect(trained.parameters_differ(), "25 is local"); });
  expect(!engine->parameters_differ() && is_same_on_all(*engine, own_masters(*engine)),
         "update 28 averages, whatever was skipped");
}

// Elements that no gradient reaches stay where they are: their share of what is compressed is noise, which 1/eps would blow up.
RANK_BODY(zero_one_unused) {
  auto world = gannet::test::world();
  auto engine = gannet::initialize(make_uneven(), {.config = zero_one_config(false, Dict{{"weight_decay", 0.0}})}).engine;
  const at::Tensor before = engine->full_fp32_parameter("first.weight").clone();
  for (int64_t step = 0; step < 32; ++step)
    for (int64_t micro = 0; micro < 2; ++micro) {
      auto [x, y] = batch_of(step, micro, engine->rank(), engine->world_size());
      x.select(1, 0).zero_();
      engine->backward(engine->forward(x, y));
      engine->step();
    }
  const at::Tensor after = engine->full_fp32_parameter("first.weight");
  expect(torch::equal(after.select(1, 0), before.select(1, 0)), "the weights of an input that is always 0");
  expect((after.slice(1, 1) - before.slice(1, 1)).abs().min().item<double>() > 0, "all others have moved");
}

class ZeroOne : public testing::Test {
 protected:
  void run(const std::string& body, int ranks) {
    const auto outcomes = run_ranks(body, ranks, {.environment = {{"FOLDER", folder_.string()}}});
    ranks::expect_all_succeed(outcomes);
    std::printf("%s", outcomes[0].output.c_str());
  }
  const TemporaryFolder folder_;
};

TEST_F(ZeroOne, FollowsTheReferenceOnOneRank) { run("zero_one_formulas", 1); }
TEST_F(ZeroOne, FollowsTheReferenceOnTwoRanks) { run("zero_one_formulas", 2); }
TEST_F(ZeroOne, FollowsTheReferenceOnFourRanks) { run("zero_one_formulas", 4); }
TEST_F(ZeroOne, RepeatsToTheBit) { run("zero_one_repeats", 2); }
TEST_F(ZeroOne, SendsNothingInLocalStepsAndSignsInOthers) {
  run("zero_one_sends", 2);
  run("zero_one_sends", 4);
}
TEST_F(ZeroOne, SkipsALocalStepOnAllRanksWhereOneOverflows) { run("zero_one_overflow", 2); }
TEST_F(ZeroOne, LeavesElementsWithoutAGradientWhereTheyAre) { run("zero_one_unused", 2); }

}  // namespace
