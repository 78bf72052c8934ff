// SAM: a step of two passes, against its formula on whole tensors and step by step; what may not be done between the passes.
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

Dict sam_config(const Place& place, const Dict& params = {}, const Dict& more = {}) {
  Dict given{{"lr", 0.05}, {"momentum", 0.9}, {"weight_decay", 0.01}, {"rho", 0.1}};
  for (const auto& [key, value] : params.entries()) given[key] = value;
  return passes_config("SAM", given, place, more);
}

template <class Engine>
void pass(Engine& engine, int64_t step, int64_t micro_batches = 1, bool is_last = true, double factor = 1) {
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    auto [x, y] = batch_of(step, micro, engine.rank());
    engine.backward(engine.forward(x, y) * factor);
    if (is_last)
      engine.step();
    else
      engine.perturb();
  }
}

template <class Engine>
at::Tensor sam(Engine& engine, int64_t steps, int64_t first = 0, int64_t micro_batches = 1) {
  for (int64_t step = first; step < first + steps; ++step) {
    pass(engine, step, micro_batches, false);
    pass(engine, step, micro_batches);
  }
  return parameters_of(engine);
}

// Foret et al. 2021, algorithm 1, with torch.optim.SGD's momentum: on the whole model and the samples of all ranks.
at::Tensor sam_reference(int64_t steps, uint32_t world, int64_t micro_batches, bool adaptive, bool nesterov) {
  auto model = make_uneven();
  const auto parameters = model->parameters();
  std::vector<at::Tensor> buffers(parameters.size());
  const auto gradients = [&](int64_t step) {
    model->zero_grad();
    for (uint32_t rank = 0; rank < world; ++rank)
      for (int64_t micro = 0; micro < micro_batches; ++micro) {
        auto [x, y] = batch_of(step, micro, rank);
        (model->forward(x, y) / static_cast<double>(world * micro_batches)).backward();
      }
  };
  for (int64_t step = 0; step < steps; ++step) {
    gradients(step);
    const torch::NoGradGuard no_grad;
    double squares = 0;
    for (const auto& p : parameters) {
      const at::Tensor g = p.grad().to(torch::kDouble);
      squares += (adaptive ? g * p.to(torch::kDouble) : g).square().sum().item<double>();
    }
    const double scale = 0.1 / (std::sqrt(squares) + 1e-12);
    std::vector<at::Tensor> before;
    for (const auto& p : parameters) {
      before.push_back(p.clone());
      const_cast<at::Tensor&>(p).add_((adaptive ? p.square() * p.grad() : p.grad()) * scale);
    }
    {
      const torch::AutoGradMode with_grad(true);
      gradients(step);
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor p = parameters[i];
      p.copy_(before[i]);
      const at::Tensor g = p.grad() + 0.01 * p;
      buffers[i] = buffers[i].defined() ? 0.9 * buffers[i] + g : g.clone();
      p.sub_(0.05 * (nesterov ? g + 0.9 * buffers[i] : buffers[i]));
    }
  }
  return flat_parameters(*model);
}

RANK_BODY(sam_follows_its_reference) {
  auto world = gannet::test::world();
  for (const auto& [adaptive, nesterov, micro_batches] : {std::tuple{false, false, 1}, {false, true, 2}, {true, false, 2}}) {
    const at::Tensor expected = sam_reference(6, world->size(), micro_batches, adaptive, nesterov);
    for (const Place& place : kPlaces) {
      const Dict more{{"gradient_accumulation_steps", micro_batches}};
      auto engine = engine_of(sam_config(place, {{"adaptive", adaptive}, {"nesterov", nesterov}}, more));
      const double off = difference(sam(*engine, 6, 0, micro_batches), expected);
      expect(off < 1e-6, text_of(place) + (adaptive ? " adaptive" : "") + ": off by " + std::to_string(off));
      expect(engine->global_steps() == 6 && engine->skipped_steps() == 0, "two passes are a step");
    }
  }
}

// Each dtype: where the masters are after perturb() and after step(), from the engine's own gradients.
RANK_BODY(sam_by_hand) {
  auto world = gannet::test::world();
  for (const std::string dtype : {"fp32", "bf16", "fp16"})
    for (const Place& place : kPlaces) {
      Dict more;
      if (dtype == "bf16") more["bf16"] = Dict{{"enabled", true}};
      if (dtype == "fp16") more["fp16"] = Dict{{"enabled", true}, {"initial_scale_power", 8}};
      auto engine = engine_of(sam_config(place, {{"momentum", 0.0}, {"weight_decay", 0.0}}, more));
      const std::string where = dtype + " at " + text_of(place);
      const auto backward = [&](int64_t step) {
        auto [x, y] = batch_of(step, 0, engine->rank());
        engine->backward(engine->forward(x, y));
        return gradients_of(*engine);
      };
      for (int64_t step = 0; step < 3; ++step) {
        const at::Tensor before = parameters_of(*engine);
        const at::Tensor g = backward(step);
        const auto moved = engine->perturb();
        expect(moved.applied && moved.boundary, where + ": perturb() moves the parameters");
        const at::Tensor there = before.to(torch::kDouble) + 0.1 * g / (g.norm() + 1e-12);
        const double off_there = difference(parameters_of(*engine), there);
        expect(off_there < 1e-6, where + ": perturbed, off by " + std::to_string(off_there));
        expect(difference(before, there) > 1e-3, where + ": the perturbation is no rounding");
        if (dtype == "fp32") expect(used_by(*engine).equal(parameters_of(*engine)), where + ": the model has them");
        if (dtype != "fp32")
          expect(difference(used_by(*engine), there) < 1e-2 && difference(used_by(*engine), before) > 1e-3,
                 where + ": the model has them, rounded");
        const at::Tensor g2 = backward(step);
        expect(engine->step().applied, where + ": the step is taken");
        const double off = difference(parameters_of(*engine), before.to(torch::kDouble) - 0.05 * g2);
        expect(off < 1e-6, where + ": updated, off by " + std::to_string(off));
      }
    }
}

// The norm is that of all groups, each has its own radius, and what the program has frozen stays.
RANK_BODY(sam_groups) {
  auto world = gannet::test::world();
  for (const Place& place : kPlaces) {
    auto engine = gannet::initialize(make_uneven(), {.config = sam_config(place, {{"momentum", 0.0}, {"weight_decay", 0.0}}),
                                                     .model_parameters = {{.overrides = {{"rho", 0.3}}, .match = {"*.bias"}}}})
                      .engine;
    for (int64_t step = 0; step < 2; ++step) {
      const bool is_frozen = step == 1;
      engine->module()->middle->weight.requires_grad_(!is_frozen);
      std::map<std::string, at::Tensor> before, gradients;
      for (const auto& name : engine->parameter_names()) before[name] = engine->full_fp32_parameter(name).clone();
      auto [x, y] = batch_of(step, 0, engine->rank());
      engine->backward(engine->forward(x, y));
      double squares = 0;
      for (const auto& name : engine->parameter_names()) {
        if (is_frozen && name == "middle.weight") continue;
        gradients[name] = engine->full_gradient(name).to(torch::kDouble);
        squares += gradients[name].square().sum().item<double>();
      }
      engine->perturb();
      for (const auto& name : engine->parameter_names()) {
        const at::Tensor found = engine->full_fp32_parameter(name);
        if (!gradients.contains(name)) {
          expect(found.equal(before[name]), "a frozen parameter stays at " + text_of(place));
          continue;
        }
        const double rho = name.ends_with("bias") ? 0.3 : 0.1;
        const double off = difference(found, before[name] + rho * gradients[name] / std::sqrt(squares));
        expect(off < 1e-6, name + " at " + text_of(place) + ": off by " + std::to_string(off));
      }
      engine->backward(engine->forward(x, y));
      expect(engine->step().applied, "the step is taken");
      if (is_frozen)
        expect(engine->full_fp32_parameter("middle.weight").equal(before["middle.weight"]), "and it stays in the update");
    }
  }
}

// With a learning rate of 0 a step leaves every bit, of the masters and of what the model reads.
RANK_BODY(sam_restores) {
  auto world = gannet::test::world();
  for (const std::string dtype : {"fp32", "bf16"})
    for (const Place& place : kPlaces) {
      Dict more;
      if (dtype == "bf16") more["bf16"] = Dict{{"enabled", true}};
      auto engine = engine_of(sam_config(place, {{"lr", 0.0}}, more));
      const at::Tensor masters = parameters_of(*engine), used = used_by(*engine);
      sam(*engine, 3);
      expect(parameters_of(*engine).equal(masters) && used_by(*engine).equal(used), dtype + " at " + text_of(place));
      pass(*engine, 3, 1, false);
      expect(!parameters_of(*engine).equal(masters), "perturb() moves the masters at " + text_of(place));
      engine->abandon_step();
      expect(parameters_of(*engine).equal(masters) && used_by(*engine).equal(used),
             "abandon_step(), " + dtype + " at " + text_of(place));
    }
}

RANK_BODY(sam_repeats) {
  auto world = gannet::test::world();
  for (const Place& place : kPlaces) {
    const at::Tensor once = sam(*engine_of(sam_config(place)), 4);
    expect(sam(*engine_of(sam_config(place)), 4).equal(once), text_of(place));
    const Dict watched{{"gannet", Dict{{"debug_plugins", true}}}};
    expect(sam(*engine_of(sam_config(place, {}, watched)), 4).equal(once), "watched, " + text_of(place));
  }
}

// A step without perturb() is SGD's, and after such steps the next one may be of two passes again.
RANK_BODY(sam_now_and_then) {
  auto world = gannet::test::world();
  const auto run = [&](const Dict& config, bool now_and_then) {
    auto engine = engine_of(config);
    for (int64_t step = 0; step < 4; ++step) {
      if (now_and_then && step % 2 == 1) pass(*engine, step, 1, false);
      pass(*engine, step);
    }
    return parameters_of(*engine);
  };
  const Dict sgd = passes_config("SGD", {{"lr", 0.05}, {"momentum", 0.9}, {"weight_decay", 0.01}}, {1, "none"});
  const double off = difference(run(sam_config({1, "none"}), false), run(sgd, false));
  expect(off < 1e-6, "without perturb(): off by " + std::to_string(off));
  expect(difference(run(sam_config({1, "none"}), true), run(sgd, false)) > 1e-4, "with it in every other step");
  const CapturedLog log;
  run(sam_config({0, "none"}), false);
  const std::string line = "a step was taken without perturb(): it was an ordinary one";
  const size_t at = log.text().find(line);
  expect((at != std::string::npos) == (world->rank() == 0), "rank 0 says so: " + log.text());
  if (world->rank() == 0) expect(log.text().find(line, at + 1) == std::string::npos, "once: " + log.text());
}

// An overflow in a pass changes nothing, and the step is skipped; the program does not check.
RANK_BODY(sam_overflows) {
  auto world = gannet::test::world();
  for (const Place& place : kPlaces)
    for (const bool in_first : {true, false}) {
      const Dict more{{"fp16", Dict{{"enabled", true}, {"initial_scale_power", 8}, {"hysteresis", 1}}}};
      auto engine = engine_of(sam_config(place, {}, more));
      sam(*engine, 1);
      const at::Tensor masters = parameters_of(*engine), used = used_by(*engine);
      auto [x, y] = batch_of(1, 0, engine->rank());
      const double huge = engine->rank() == engine->world_size() - 1 ? 1e30 : 1;  // on one rank
      engine->backward(engine->forward(x, y) * (in_first ? huge : 1));
      const auto moved = engine->perturb();
      expect(moved.applied != in_first && moved.boundary, "perturb() says whether it moved them");
      if (in_first) contains(moved.reason, "step 2 will be skipped");
      expect(parameters_of(*engine).equal(masters) == in_first, "an overflow moves nothing");
      engine->backward(engine->forward(x, y) * (in_first ? 1 : huge));
      const auto done = engine->step();
      expect(!done.applied && done.boundary, "the step is skipped at " + text_of(place));
      if (in_first) contains(done.reason, "in the pass that perturb() ended");
      expect(engine->loss_scale() == 128 && engine->skipped_steps() == 1 && engine->global_steps() == 2, "it counts once");
      expect(parameters_of(*engine).equal(masters) && used_by(*engine).equal(used),
             "everything is as it was at " + text_of(place));
      sam(*engine, 1, 2);
      expect(engine->was_step_applied(), "and training continues");
    }
}

// A pass that ended in an exception begins again.
RANK_BODY(sam_tries_again) {
  auto world = gannet::test::world();
  for (const Place& place : kPlaces) {
    const at::Tensor expected = sam(*engine_of(sam_config(place)), 3);
    auto engine = engine_of(sam_config(place));
    sam(*engine, 1);
    pass(*engine, 1, 1, false);
    auto [x, y] = batch_of(1, 0, engine->rank());
    engine->forward(x, y);
    contains(message_of([&] { engine->backward(at::zeros({2}, at::requires_grad())); }), "a loss of one element");
    engine->zero_grad();
    pass(*engine, 1);
    pass(*engine, 2, 1, false);
    engine->abandon_step();  // and so does the whole step
    expect(sam(*engine, 1, 2).equal(expected), text_of(place));
  }
}

RANK_BODY(sam_in_order) {
  auto world = gannet::test::world();
  const std::string folder = variable("FOLDER");
  auto engine = engine_of(sam_config({2, "none"}));
  contains(message_of([&] { engine->perturb(); }), "perturb() was called before forward() and backward()");
  pass(*engine, 0, 1, false);
  const std::string between = "between perturb() and the step() that ends step 1";
  contains(message_of([&] { engine->save_checkpoint(folder); }), "save_checkpoint() was called " + between);
  contains(message_of([&] { engine->load_checkpoint(folder); }), "load_checkpoint() was called " + between);
  contains(message_of([&] { engine->eval(); }), "eval() was called " + between);
  contains(message_of([&] { engine->save_fp32_model(folder); }), "save_fp32_model() was called " + between);
  contains(message_of([&] { engine->save_16bit_model(folder); }), "save_16bit_model() was called " + between);
  contains(message_of([&] { engine->refresh_masters(); }), "refresh_masters() was called " + between);
  contains(message_of([&] { engine->set_full_fp32_parameter("first.bias", at::zeros({37})); }), between);
  contains(message_of([&] { engine->swap_optimizer("SGD"); }), "swap_optimizer() was called " + between);
  auto [x, y] = batch_of(0, 0, engine->rank());
  engine->backward(engine->forward(x, y));
  contains(message_of([&] { engine->perturb(); }), "perturb() was called twice in step 1");
  engine->step();
  const at::Tensor after = parameters_of(*engine);
  engine->save_checkpoint(folder);

  pass(*engine, 1, 1, false);
  {
    const torch::NoGradGuard no_grad;
    engine->module()->first->bias.add_(1);
  }
  contains(message_of([&] { engine->forward(x, y); }), "parameter 'first.bias' was written between perturb() and step()");
  engine->abandon_step();
  expect(parameters_of(*engine).equal(after), "abandon_step() puts back what was written, too");
  sam(*engine, 1, 1);
  engine->load_checkpoint(folder);
  expect(parameters_of(*engine).equal(after), "a checkpoint after a step is loaded");

  auto other = engine_of(passes_config("SGD", {{"lr", 0.05}}, {0, "none"}));
  other->backward(other->forward(x, y));
  contains(message_of([&] { other->perturb(); }), "optimizer 'SGD' has no perturbation (it lacks the capability PERTURBS)");
  expect(other->step().applied, "and the step can be taken");
}

class TwoPasses : public PassesTest {};

TEST_F(TwoPasses, SamFollowsItsReferenceAtEveryStageOnEveryTier) { run("sam_follows_its_reference", 1); }
TEST_F(TwoPasses, SamFollowsItsReferenceOnTwoRanks) { run("sam_follows_its_reference", 2); }
TEST_F(TwoPasses, SamMovesAndUpdatesMastersOfEveryDtype) { run("sam_by_hand", 1); }
TEST_F(TwoPasses, SamMovesAndUpdatesMastersOfEveryDtypeOnTwoRanks) { run("sam_by_hand", 2); }
TEST_F(TwoPasses, TheNormIsThatOfAllGroupsWithoutFrozenParameters) { run("sam_groups", 2); }
TEST_F(TwoPasses, ParametersAreRestoredBitForBit) { run("sam_restores", 2); }
TEST_F(TwoPasses, SamGivesTheSameBitsAgain) { run("sam_repeats", 2); }
TEST_F(TwoPasses, AStepWithoutPerturbIsSgds) { run("sam_now_and_then", 2); }
TEST_F(TwoPasses, AnOverflowInEitherPassSkipsTheStep) { run("sam_overflows", 2); }
TEST_F(TwoPasses, APassThatFailedBeginsAgain) { run("sam_tries_again", 2); }
TEST_F(TwoPasses, CallsBetweenThePassesAreRefused) { run("sam_in_order", 2); }

}  // namespace
