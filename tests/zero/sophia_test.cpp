// Sophia: a second gradient every few steps, against its formula on whole tensors; what is an error without one.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "engine/impl.h"
#include "zero/passes.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::Value;
using ranks::expect;
using ranks::run_ranks;

Dict sophia_config(const Place& place, const Dict& more = {}, int64_t interval = 3) {
  return passes_config("Sophia",
                       {{"lr", 0.01},
                        {"betas", gannet::List{0.9, 0.95}},
                        {"weight_decay", 0.1},
                        {"rho", 0.04},
                        {"bs", 200},
                        {"hessian_interval", interval}},
                       place, more);
}

// In the place of labels that are drawn: other targets.
at::Tensor drawn(const at::Tensor& y) { return y * 0.5 - 0.3; }

template <class Engine>
void one_step(Engine& engine, int64_t step, int64_t micro_batches = 1) {
  if (engine.wants_second_gradient())
    for (int64_t micro = 0; micro < micro_batches; ++micro) {
      auto [x, y] = batch_of(step, micro, engine.rank());
      engine.backward(engine.forward(x, drawn(y)));
      engine.keep_second_gradient();
    }
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    auto [x, y] = batch_of(step, micro, engine.rank());
    engine.backward(engine.forward(x, y));
    engine.step();
  }
}

template <class Engine>
at::Tensor sophia(Engine& engine, int64_t steps, int64_t first = 0, int64_t micro_batches = 1) {
  for (int64_t step = first; step < first + steps; ++step) one_step(engine, step, micro_batches);
  return parameters_of(engine);
}

// The authors' SophiaG, with the second gradient before the first of the same step.
at::Tensor sophia_reference(int64_t steps, uint32_t world, int64_t micro_batches) {
  auto model = make_uneven();
  std::vector<at::Tensor> m, h;
  for (const auto& p : model->parameters()) {
    m.push_back(at::zeros_like(p));
    h.push_back(at::zeros_like(p));
  }
  const auto gradients = [&](int64_t step, bool is_second) {
    model->zero_grad();
    for (uint32_t rank = 0; rank < world; ++rank)
      for (int64_t micro = 0; micro < micro_batches; ++micro) {
        auto [x, y] = batch_of(step, micro, rank);
        (model->forward(x, is_second ? drawn(y) : y) / static_cast<double>(world * micro_batches)).backward();
      }
    std::vector<at::Tensor> all;
    for (const auto& p : model->parameters()) all.push_back(p.grad().clone());
    return all;
  };
  for (int64_t step = 0; step < steps; ++step) {
    if (step % 3 == 0) {
      const auto second = gradients(step, true);
      for (size_t i = 0; i < h.size(); ++i) h[i] = 0.95 * h[i] + 0.05 * second[i] * second[i];
    }
    const auto first = gradients(step, false);
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < m.size(); ++i) {
      at::Tensor p = model->parameters()[i];
      m[i] = 0.9 * m[i] + 0.1 * first[i];
      p.mul_(1 - 0.01 * 0.1);
      p.sub_(0.01 * m[i].sign() * (m[i].abs() / (0.04 * 200 * h[i] + 1e-15)).clamp_max(1));
    }
  }
  return flat_parameters(*model);
}

// Where an element is not clipped the rounding of its momentum and its Hessian come in, some of which are near 0.
constexpr double kOfReference = 2e-6;

RANK_BODY(sophia_follows_its_reference) {
  auto world = gannet::test::world();
  for (const int64_t micro_batches : {1, 2}) {
    const at::Tensor expected = sophia_reference(8, world->size(), micro_batches);
    for (const Place& place : kPlaces) {
      auto engine = engine_of(sophia_config(place, {{"gradient_accumulation_steps", micro_batches}}));
      const double off = difference(sophia(*engine, 8, 0, micro_batches), expected);
      expect(off < kOfReference, text_of(place) + ": off by " + std::to_string(off));
      expect(engine->global_steps() == 8, "a second gradient is no step");
      expect(!engine->impl().updater.second_gradient().is_kept(), "and it is dropped after its step");
    }
  }
}

// On one rank the same bits everywhere, also with plugins watched; and again.
RANK_BODY(sophia_everywhere) {
  auto world = gannet::test::world();
  for (const std::string dtype : {"fp32", "bf16"}) {
    Dict more;
    if (dtype == "bf16") more["bf16"] = Dict{{"enabled", true}};
    const at::Tensor expected = sophia(*engine_of(sophia_config({0, "none"}, more)), 5);
    for (const Place& place : kPlaces) {
      const at::Tensor found = sophia(*engine_of(sophia_config(place, more)), 5);
      if (world->size() == 1) expect(found.equal(expected), dtype + " at " + text_of(place));
      expect(sophia(*engine_of(sophia_config(place, more)), 5).equal(found), "again, " + dtype + " at " + text_of(place));
    }
    more["gannet"] = Dict{{"debug_plugins", true}};
    expect(sophia(*engine_of(sophia_config({0, "none"}, more)), 5).equal(expected), "watched it computes the same");
  }
}

// A run that resumes asks for its second gradients where the whole one did.
RANK_BODY(sophia_resumes) {
  auto world = gannet::test::world();
  const std::string folder = variable("FOLDER");
  for (const auto& [from, to] : {std::pair{Place{0, "none"}, Place{0, "none"}}, {{2, "none"}, {3, "cpu"}}}) {
    const at::Tensor expected = sophia(*engine_of(sophia_config(to)), 7);
    auto before = engine_of(sophia_config(from));
    sophia(*before, 4);
    before->save_checkpoint(folder, {.tag = text_of(from)});
    before.reset();
    auto after = engine_of(sophia_config(to));
    after->load_checkpoint(folder, {.tag = text_of(from)});
    const double off = difference(sophia(*after, 3, 4), expected);
    expect(off < 1e-7, text_of(from) + " to " + text_of(to) + ": off by " + std::to_string(off));
  }
}

RANK_BODY(sophia_in_order) {
  auto world = gannet::test::world();
  auto engine = engine_of(sophia_config({1, "none"}));
  auto [x, y] = batch_of(0, 0, engine->rank());
  const auto backward = [&, &x = x, &y = y] { engine->backward(engine->forward(x, y)); };
  const at::Tensor begin = parameters_of(*engine);
  expect(engine->wants_second_gradient(), "the first step wants one");
  backward();
  contains(message_of([&] { engine->step(); }), "step 1 of optimizer 'Sophia' takes a second gradient, and none was kept");
  engine->zero_grad();
  backward();
  const auto kept = engine->keep_second_gradient();
  expect(kept.applied && kept.boundary && !engine->wants_second_gradient(), "it is kept");
  contains(message_of([&] { engine->save_checkpoint(variable("FOLDER")); }),
           "save_checkpoint() was called between keep_second_gradient() and the step() that ends step 1");
  backward();
  contains(message_of([&] { engine->keep_second_gradient(); }), "keep_second_gradient() was called twice in step 1");
  engine->abandon_step();
  expect(engine->wants_second_gradient() && parameters_of(*engine).equal(begin), "the step begins again");
  one_step(*engine, 0);
  expect(!engine->wants_second_gradient(), "the second step wants none");
  backward();
  contains(message_of([&] { engine->keep_second_gradient(); }), "step 2 of optimizer 'Sophia' takes no second gradient");
  expect(engine->step().applied, "and it can be taken");
  backward();
  contains(message_of([&] { engine->perturb(); }), "optimizer 'Sophia' has no perturbation");
}

RANK_BODY(sophia_overflows) {
  auto world = gannet::test::world();
  for (const Place& place : kPlaces) {
    auto engine =
        engine_of(sophia_config(place, {{"fp16", Dict{{"enabled", true}, {"initial_scale_power", 8}, {"hysteresis", 1}}}}));
    const at::Tensor before = parameters_of(*engine);
    auto [x, y] = batch_of(0, 0, engine->rank());
    engine->backward(engine->forward(x, drawn(y)) * (engine->rank() == 0 ? 1e30 : 1));
    expect(!engine->keep_second_gradient().applied, "an overflow is not kept");
    engine->backward(engine->forward(x, y));
    const auto done = engine->step();
    expect(!done.applied && engine->loss_scale() == 128 && parameters_of(*engine).equal(before), "the step is skipped");
    contains(done.reason, "in the pass that keep_second_gradient() ended");
    expect(engine->wants_second_gradient(), "the next one wants it again");
    one_step(*engine, 0);
    expect(engine->was_step_applied(), "and is taken at " + text_of(place));
  }
}

class SecondGradients : public PassesTest {};

TEST_F(SecondGradients, SophiaFollowsItsReferenceAtEveryStageOnEveryTier) { run("sophia_follows_its_reference", 1); }
TEST_F(SecondGradients, SophiaFollowsItsReferenceOnTwoRanks) { run("sophia_follows_its_reference", 2); }
TEST_F(SecondGradients, SophiaTrainsTheSameEverywhere) { run("sophia_everywhere", 1); }
TEST_F(SecondGradients, SophiaGivesTheSameBitsAgainOnTwoRanks) { run("sophia_everywhere", 2); }
TEST_F(SecondGradients, ARunThatResumesAsksForThemInTheSameSteps) { run("sophia_resumes", 2); }
TEST_F(SecondGradients, TheirAbsenceIsAnErrorBeforeAnythingHasChanged) { run("sophia_in_order", 2); }
TEST_F(SecondGradients, AnOverflowSkipsTheStep) { run("sophia_overflows", 2); }

}  // namespace
