// OneBitAdam and OneBitLamb through the engine: their formulas on 1, 2 and 4 ranks against a plain reference, what they send, and
// what is refused.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <cmath>

#include "control/world.h"
#include "plugin/support.h"
#include "zero/onebit_reference.h"
#include "zero/onebit_support.h"
#include "zero/support.h"
#include "zero/uneven.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;
using ranks::same;

// Both micro-batches of every rank, with only autograd.
std::vector<std::vector<at::Tensor>> gradients_of(UnevenImpl& model, int64_t step, int64_t ranks) {
  std::vector<std::vector<at::Tensor>> all;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    model.zero_grad();
    for (int64_t micro = 0; micro < 2; ++micro) {
      auto [x, y] = batch_of(step, micro, rank, ranks);
      model.forward(x, y).backward(torch::full({}, 0.5, model.first->weight.scalar_type()));
    }
    auto& own = all.emplace_back();
    for (const at::Tensor& parameter : model.parameters()) own.push_back(parameter.grad().clone());
  }
  return all;
}

void follow_the_reference(bool bf16, bool lamb) {
  auto engine =
      gannet::initialize(make_uneven(), {.config = config_of(bf16, {}, 0.05, lamb ? "OneBitLamb" : "OneBitAdam")}).engine;
  const int64_t size = engine->world_size();
  auto model = make_uneven();
  OneBitReference reference(model->parameters(),
                            {.ranks = size, .freeze_step = kFreezeStep, .weight_decay = 0.1, .clipping = 0.05, .lamb = lamb});
  if (bf16) model->to(torch::kBFloat16);
  const auto average = [&](const std::vector<at::Tensor>& of_ranks) {  // added in fp32, kept in the gradient's type
    at::Tensor sum = of_ranks[0].to(torch::kFloat);
    for (size_t r = 1; r < of_ranks.size(); ++r) sum = sum + of_ranks[r].to(torch::kFloat);
    return sum.to(of_ranks[0].scalar_type()).to(torch::kFloat) / static_cast<double>(size);
  };
  for (int64_t step = 0; step < 8; ++step) {
    if (bf16) {
      // Each step begins at the engine's numbers: a rounding of a parameter to bf16 that falls to the other side changes
      // gradients by 2^-9 of themselves, and with them signs, so that two runs part.
      const std::vector<std::string> names = engine->parameter_names();
      for (size_t p = 0; p < names.size(); ++p) {
        reference.masters[p] = engine->full_fp32_parameter(names[p]).flatten().clone();
        reference.exp_avg[p] = engine->full_optimizer_state(names[p], "exp_avg").flatten().clone();
        reference.exp_avg_sq[p] = engine->full_optimizer_state(names[p], "exp_avg_sq").flatten().clone();
      }
    }
    {
      const torch::NoGradGuard no_grad;
      auto parameters = model->parameters();
      for (size_t p = 0; p < parameters.size(); ++p) parameters[p].copy_(reference.masters[p].view(parameters[p].sizes()));
    }
    reference.step(gradients_of(*model, step, size), average);
    train_accumulated(*engine, 1);
    const std::string where =
        std::string(lamb ? "LAMB" : "Adam") + (bf16 ? " in bf16, step " : " in fp32, step ") + std::to_string(step + 1);
    const double norm = *engine->get_global_grad_norm();
    expect(std::abs(norm - reference.norm) <= (bf16 ? 1e-2 : 1e-5) * reference.norm,
           where + ": norm " + std::to_string(norm) + ", reference " + std::to_string(reference.norm));
    const at::Tensor found = parameters_of(*engine), expected = torch::cat(reference.masters);
    if (bf16) {
      // A compressed value within a rounding of zero may get the other sign, in a millionth of the
      // elements.
      const double share = (found - expected).abs().gt(1e-6).to(torch::kDouble).mean().item<double>();
      expect(share < 1e-3, where + ": a share of " + std::to_string(share) + " of the elements is off");
    } else {  // roundings of some operations a step
      const double off = difference(found, expected);
      expect(off < 5e-7, where + " is off by " + std::to_string(off * 1e9) + "e-9");
    }
    std::vector<at::Tensor> momenta;
    for (const auto& name : engine->parameter_names()) momenta.push_back(engine->full_optimizer_state(name, "exp_avg").flatten());
    const double momentum_off = difference(torch::cat(momenta), torch::cat(reference.exp_avg));
    expect(momentum_off < (bf16 ? 0.1 : 1e-4), where + ": exp_avg is off by " + std::to_string(momentum_off));
  }
}

RANK_BODY(formulas) {
  auto world = gannet::test::world();
  for (const bool lamb : {false, true})
    for (const bool bf16 : {false, true}) follow_the_reference(bf16, lamb);
}

// 2 phases of numel/8 (N-1)/N bytes of signs a rank; scales, and the norm's sum, apart.
RANK_BODY(sends) {
  auto world = gannet::test::world();
  Dict config = config_of(true, {}, 1.0);
  config["zero_optimization"] = Dict{{"stage", 0}};
  config["gradient_accumulation_steps"] = 1;
  auto engine = gannet::initialize(make_net(1, 20'000), {.config = config}).engine;
  auto& comm = world->links().device().comm();
  const int64_t n = world->size();
  const double parameters = 8 * 20'000 + 20'000 + 20'000 * 4 + 4;
  uint64_t before = 0;
  const auto sent_in_a_step = [&](int64_t step) {
    auto [x, y] = make_batch(step * n + world->rank(), 4);
    before = comm.counters().bytes_sent;
    engine->backward(engine->forward(x, y));
    engine->step();
    return static_cast<double>(comm.counters().bytes_sent - before);
  };
  for (int64_t step = 0; step < kFreezeStep; ++step) {
    const double sent = sent_in_a_step(step), formula = 2 * 4 * parameters * static_cast<double>(n - 1) / static_cast<double>(n);
    expect(sent > formula && sent < 1.01 * formula, "the warm-up sends whole gradients: " + std::to_string(sent));
  }
  for (int64_t step = kFreezeStep; step < kFreezeStep + 3; ++step) {
    const double sent = sent_in_a_step(step);
    const double scales = 2 * 4 * 4 * static_cast<double>(n - 1);  // at most 4 tensors, fp32, both phases
    const double padding = 32.0 * static_cast<double>(4 + n) / 4;
    const double formula = parameters / 4 * static_cast<double>(n - 1) / static_cast<double>(n);
    expect(sent > 0.999 * formula && sent < 1.001 * formula + scales + padding + 64,
           "a compressed step sends " + std::to_string(sent) + " bytes, the formula says " + std::to_string(formula));
  }
}

// For a run that sends bf16 gradients in its first steps, a share w of all, and 1 bit for each of
// their 16 in the others.
RANK_BODY(whole_run) {
  auto world = gannet::test::world();
  constexpr int64_t kSteps = 20, kWidth = 100'000;
  const auto sent_by = [&](const Dict& optimizer) {
    Dict config = config_with({{"zero_optimization", Dict{{"stage", 0}}}, {"communication_data_type", "bf16"}});
    config["optimizer"] = optimizer;
    config["bf16"] = Dict{{"enabled", true}};
    auto engine = gannet::initialize(make_net(1, kWidth), {.config = config}).engine;
    auto& comm = world->links().device().comm();
    const uint64_t before = comm.counters().bytes_sent;
    for (int64_t step = 0; step < kSteps; ++step) {
      auto [x, y] = make_batch(step * world->size() + world->rank(), 4);
      engine->backward(engine->forward(x, y));
      engine->step();
    }
    return static_cast<double>(comm.counters().bytes_sent - before);
  };
  const double uncompressed = sent_by(Dict{{"type", "Adam"}, {"params", Dict{{"lr", 1e-4}}}});
  for (const int64_t freeze_step : {3, 5}) {
    const double sent = sent_by(Dict{{"type", "OneBitAdam"}, {"params", Dict{{"lr", 1e-4}, {"freeze_step", freeze_step}}}});
    const double share = static_cast<double>(freeze_step) / kSteps, formula = 1 / (share + (1 - share) / 16);
    const std::string text = "with a share of " + std::to_string(share) + " the run sends 1/" +
                             std::to_string(uncompressed / sent) + " of the bytes, the formula says 1/" + std::to_string(formula);
    if (world->rank() == 0) std::printf("%s\n", text.c_str());
    expect(std::abs(uncompressed / sent / formula - 1) < 1e-3, text);
  }
}

// Two heads, of which a rank may leave one out: its gradient is then a sum of zeros, or is not there.
struct TwoHeadsImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y, bool has_second, bool has_zeros) {
    at::Tensor loss = torch::mse_loss(first(x), y);
    if (has_second) return loss + torch::mse_loss(second(x), y);
    return has_zeros ? loss + second(x).sum() * 0 : loss;
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(8, 4));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(8, 4));
};

RANK_BODY(without_a_gradient) {
  auto world = gannet::test::world();
  for (const char* type : {"OneBitAdam", "OneBitLamb"}) {
    const auto train = [&](bool has_zeros) {
      torch::manual_seed(2);
      Dict config = config_of(false, {}, 1.0, type);
      config["gradient_accumulation_steps"] = 1;
      auto engine = gannet::initialize(std::make_shared<TwoHeadsImpl>(), {.config = config}).engine;
      for (int64_t step = 0; step < 2 * kFreezeStep; ++step) {
        auto [x, y] = make_batch(step * world->size() + world->rank(), 4);
        engine->backward(engine->forward(x, y, world->rank() != 1, has_zeros));
        expect(engine->step().applied, "a step");
      }
      return parameters_of(*engine);
    };
    expect(torch::equal(train(false), train(true)), std::string(type) + ": a gradient that is not there counts as zeros");
  }
}

RANK_BODY(overflow) {
  auto world = gannet::test::world();
  skip_one_step(config_of(), kFreezeStep + 1, 1, [](auto&) {});
}

RANK_BODY(gradients) {
  auto world = gannet::test::world();
  auto engine = gannet::initialize(make_net(), {.config = config_of()}).engine;
  train_accumulated(*engine, kFreezeStep + 1);
  auto model = make_net();
  {
    const torch::NoGradGuard no_grad;
    auto own = engine->fp32_parameters();
    auto parameters = model->parameters();
    for (size_t p = 0; p < parameters.size(); ++p) parameters[p].copy_(own[p].second);
  }
  for (uint32_t r = 0; r < world->size(); ++r)
    for (int64_t micro = 0; micro < 2; ++micro) {
      auto [x, y] = batch_of(engine->global_steps(), micro, r, world->size());
      (model->forward(x, y) / (2.0 * world->size())).backward();
    }
  for (int64_t micro = 0; micro < 2; ++micro) {
    auto [x, y] = batch_of(engine->global_steps(), micro, world->rank(), world->size());
    engine->backward(engine->forward(x, y));
    if (micro == 0) engine->step();
  }
  for (const auto& parameter : model->named_parameters())
    expect(difference(engine->full_gradient(parameter.key()), parameter.value().grad()) < 1e-5, "the mean of " + parameter.key());
  contains(message_of([&] { engine->local_gradient("first.weight"); }), "full_gradient() averages it");
  contains(message_of([&] { engine->full_optimizer_state("first.weight", "worker_error"); }), "is other on every rank");
  engine->for_each_gradient([](const std::string&, at::Tensor& gradient) { gradient.zero_(); });
  engine->step();
  same(*engine->get_global_grad_norm(), 0.0, "the norm of what the program wrote");
}

RANK_BODY(refusals) {
  auto world = gannet::test::world();
  const auto made_with = [&](const Dict& config) {
    return message_of([&] { gannet::initialize(make_net(), {.config = config}); });
  };
  Dict config = config_of();
  for (const int64_t stage : {1, 2, 3}) {
    config["zero_optimization"] = Dict{{"stage", stage}};
    const std::string text = made_with(config);
    contains(text, "optimizer 'OneBitAdam' averages gradients itself, and ZeRO stage " + std::to_string(stage));
    contains(text, "set zero_optimization.stage to 0");
  }
  contains(made_with(config_of(false, Dict{{"amsgrad", true}})), "the 1-bit optimizers have no AMSGrad variant");
  contains(made_with(config_of(false, Dict{{"max_grad_norm", 1.0}})), "write gradient_clipping at the top level");
  contains(made_with(config_of(false, Dict{{"freeze_step", 0}})), "freeze_step");

  auto frozen = gannet::initialize(make_net(), {.config = config_of()});
  train_accumulated(*frozen.engine, 1);
  frozen.engine->module()->first->weight.set_requires_grad(false);
  contains(message_of([&] { train_accumulated(*frozen.engine, 1); }),
           "parameter 'first.weight', which was frozen after initialize");

  auto net = make_net();
  net->second->bias.set_requires_grad(false);
  auto joins = gannet::initialize(net, {.config = config_of()}).engine;
  train_accumulated(*joins, 1);
  net->second->bias.set_requires_grad(true);
  contains(message_of([&] { train_accumulated(*joins, 1); }), "parameter 'second.bias' cannot join now");

  Dict other = config_of();
  other["optimizer"] = adamw();
  auto adam = gannet::initialize(make_net(), {.config = other}).engine;
  train_accumulated(*adam, 1);
  contains(message_of([&] { adam->swap_optimizer("OneBitAdam", Dict{{"lr", 1e-3}}); }), "begin the run with it in the config");
  auto onebit = gannet::initialize(make_net(), {.config = config_of()}).engine;
  train_accumulated(*onebit, kFreezeStep + 1);
  onebit->swap_optimizer("AdamW", Dict{{"lr", 1e-3}});
  train_accumulated(*onebit, 2);
  onebit->swap_optimizer("OneBitAdam", Dict{{"lr", 1e-3}, {"freeze_step", 1}});
  train_accumulated(*onebit, 3);
  expect(parameters_of(*onebit).isfinite().all().item<bool>(), "there and back");
}

class OneBit : public testing::Test {
 protected:
  void run(const std::string& body, int ranks) {
    ranks::expect_all_succeed(run_ranks(body, ranks, {.environment = {{"FOLDER", folder_.string()}}}));
  }
  const TemporaryFolder folder_;
};

TEST_F(OneBit, FollowsTheReferenceOnOneRank) { run("formulas", 1); }
TEST_F(OneBit, FollowsTheReferenceOnTwoRanks) { run("formulas", 2); }
TEST_F(OneBit, FollowsTheReferenceOnFourRanks) { run("formulas", 4); }
TEST_F(OneBit, SendsWhatTheFormulaSays) {
  run("sends", 2);
  run("sends", 4);
}
// Scales, padding and the sums of the check are all counted.
TEST_F(OneBit, AWholeRunSendsTheShareOfItsWarmUpAndASixteenthOfTheRest) { run("whole_run", 4); }
TEST_F(OneBit, TakesAParameterWithoutAGradientOnOneRank) { run("without_a_gradient", 2); }
TEST_F(OneBit, SkipsAStepOnAllRanksWhereOneOverflows) { run("overflow", 2); }
TEST_F(OneBit, GivesTheMeanOfTheRanksGradients) { run("gradients", 2); }
TEST_F(OneBit, RefusesWhatItCannotDo) { run("refusals", 2); }

}  // namespace
