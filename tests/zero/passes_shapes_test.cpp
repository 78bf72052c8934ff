// Steps of two passes of models with odd shapes, on every tier and with errors in between, against plain LibTorch or a plain run.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <limits>

#include "engine/impl.h"
#include "zero/passes.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::Value;
using ranks::expect;
using ranks::run_ranks;

// Tensors of 0, 1 and odd numbers of elements, tied ones, of one dtype or another.
struct OddImpl : torch::nn::Module {
  explicit OddImpl(at::ScalarType dtype = at::kFloat) {
    const auto make = [&](const char* name, at::IntArrayRef shape) {
      return register_parameter(name, torch::randn(shape, at::TensorOptions().dtype(dtype)) * 0.3);
    };
    none = make("none", {0, 3});
    scalar = make("scalar", {});
    one = make("one", {1});
    odd = make("odd", {8, 13});
    tied = odd;
    register_parameter("tied", odd);
    out = make("out", {13, 4});
    unused = make("unused", {5});
    prime = make("prime", {4099});
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const auto dtype = odd.scalar_type();
    const at::Tensor h = torch::tanh(x.to(dtype).matmul(odd) * one + scalar) + x.to(dtype).matmul(tied) + none.sum();
    return torch::mse_loss(h.matmul(out), y.to(dtype)) + prime.square().mean() * prime.sin().sum() * 0.01;
  }
  at::Tensor none, scalar, one, odd, tied, out, unused, prime;
};

at::Tensor plain_sam(torch::nn::Module& model, const std::function<at::Tensor(int64_t, int64_t, uint32_t)>& loss, int64_t steps,
                     int64_t micro_batches, uint32_t world, bool adaptive, bool nesterov, double momentum, double clip) {
  std::vector<at::Tensor> parameters;
  for (const auto& p : model.parameters())
    if (std::none_of(parameters.begin(), parameters.end(), [&](const auto& q) { return q.is_same(p); })) parameters.push_back(p);
  std::vector<at::Tensor> buffers(parameters.size());
  const auto gradients = [&](int64_t step) {
    model.zero_grad();
    for (uint32_t rank = 0; rank < world; ++rank)
      for (int64_t micro = 0; micro < micro_batches; ++micro)
        (loss(step, micro, rank) / static_cast<double>(world * micro_batches)).backward();
    for (const auto& p : parameters)
      if (!p.grad().defined()) const_cast<at::Tensor&>(p).mutable_grad() = torch::zeros_like(p);
  };
  for (int64_t step = 0; step < steps; ++step) {
    gradients(step);
    std::vector<at::Tensor> before;
    {
      const torch::NoGradGuard no_grad;
      double squares = 0;
      for (const auto& p : parameters) {
        const at::Tensor g = p.grad().to(torch::kDouble);
        squares += (adaptive ? g * p.to(torch::kDouble) : g).square().sum().item<double>();
      }
      const double scale = 0.1 / (std::sqrt(squares) + 1e-12);
      for (const auto& p : parameters) {
        before.push_back(p.clone());
        const_cast<at::Tensor&>(p).add_((adaptive ? p.square() * p.grad() : p.grad()) * scale);
      }
    }
    gradients(step);
    const torch::NoGradGuard no_grad;
    if (clip > 0) {
      std::vector<at::Tensor> all(parameters.begin(), parameters.end());
      torch::nn::utils::clip_grad_norm_(all, clip);
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor p = parameters[i];
      p.copy_(before[i]);
      const at::Tensor g = p.grad() + 0.01 * p;
      buffers[i] = buffers[i].defined() ? momentum * buffers[i] + g : g.clone();
      p.sub_(0.05 * (momentum == 0 ? g : nesterov ? g + momentum * buffers[i] : buffers[i]));
    }
  }
  std::vector<at::Tensor> parts;
  for (const auto& p : model.parameters()) parts.push_back(p.detach().flatten().to(torch::kDouble));
  return torch::cat(parts);
}

RANK_BODY(odd_shapes) {
  auto world = gannet::test::world();
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (const auto& [adaptive, nesterov, momentum, clip, micro_batches] :
         {std::tuple{false, false, 0.9, 0.0, 1}, {true, true, 0.9, 0.05, 2}, {true, false, 0.0, 0.01, 3}}) {
      torch::manual_seed(3);
      auto plain = std::make_shared<OddImpl>(dtype);
      const at::Tensor expected = plain_sam(
          *plain,
          [&](int64_t step, int64_t micro, uint32_t rank) {
            auto [x, y] = batch_of(step, micro, rank);
            return plain->forward(x, y);
          },
          5, micro_batches, world->size(), adaptive, nesterov, momentum, clip);
      for (const Place& place : kPlaces) {
        const std::string where = std::string(c10::toString(dtype)) + " at " + text_of(place) + (adaptive ? " adaptive" : "");
        torch::manual_seed(3);
        auto engine =
            gannet::initialize(
                std::make_shared<OddImpl>(dtype),
                {.config = two_pass_config(place, {{"gradient_accumulation_steps", micro_batches}, {"gradient_clipping", clip}},
                                           {{"adaptive", adaptive}, {"nesterov", nesterov}, {"momentum", momentum}})})
                .engine;
        for (int64_t step = 0; step < 5; ++step)
          for (const bool last : {false, true})
            for (int64_t micro = 0; micro < micro_batches; ++micro) {
              backward(*engine, step, micro);
              last ? engine->step() : engine->perturb();
            }
        std::vector<at::Tensor> parts;
        const gannet::zero::GatheredParameters gathered(*engine, engine->module()->parameters(), {});
        for (const auto& p : engine->module()->parameters()) parts.push_back(p.detach().flatten().to(torch::kDouble).clone());
        const double off = difference(torch::cat(parts), expected);
        expect(off < (dtype == at::kFloat ? 2e-6 : 1e-12), where + ": off by " + std::to_string(off * 1e9) + "e-9");
      }
    }
}

const std::vector<std::pair<std::string, std::string>> kTiers = {{"none", "cpu"},  {"cpu", "cpu"},  {"nvme", "cpu"},
                                                                 {"none", "nvme"}, {"cpu", "nvme"}, {"nvme", "nvme"}};
RANK_BODY(param_tiers) {
  auto world = gannet::test::world();
  for (const std::string dtype : {"fp32", "bf16"})
    for (const auto& [states, params] : kTiers) {
      const std::string where = dtype + " states " + states + " params " + params;
      const auto config = [&](const Dict& base) {
        Dict config = base;
        Dict zero = config["zero_optimization"].as_dict();
        Dict tier{{"device", params}};
        if (params == "nvme") {
          tier["nvme_path"] = variable("FOLDER");
          tier["max_in_cpu"] = 0;
        }
        zero["offload_param"] = tier;
        config["zero_optimization"] = zero;
        return config;
      };
      auto there = engine_of(config(two_pass_config({3, states}, dtype_of(dtype))));
      auto here = engine_of(two_pass_config({3, "none"}, dtype_of(dtype)));
      for (int64_t step = 0; step < 3; ++step) {
        for (auto* engine : {there.get(), here.get()}) {
          backward(*engine, step);
          engine->perturb();
        }
        expect(parameters_of(*there).equal(parameters_of(*here)) && used_by(*there).equal(used_by(*here)), where + ": perturbed");
        if (step == 1) {
          there->abandon_step();
          here->abandon_step();
          expect(parameters_of(*there).equal(parameters_of(*here)) && used_by(*there).equal(used_by(*here)),
                 where + ": abandoned");
          for (auto* engine : {there.get(), here.get()}) {
            backward(*engine, step);
            engine->perturb();
          }
        }
        for (auto* engine : {there.get(), here.get()}) {
          backward(*engine, step);
          engine->step();
        }
        expect(parameters_of(*there).equal(parameters_of(*here)) && used_by(*there).equal(used_by(*here)), where + ": updated");
      }
      auto there2 = engine_of(config(second_config({3, states}, dtype_of(dtype))));
      auto here2 = engine_of(second_config({3, "none"}, dtype_of(dtype)));
      for (int64_t step = 0; step < 4; ++step)
        for (auto* engine : {there2.get(), here2.get()}) {
          if (engine->wants_second_gradient()) {
            backward(*engine, step, 1);
            engine->keep_second_gradient();
          }
          backward(*engine, step);
          engine->step();
        }
      expect(parameters_of(*there2).equal(parameters_of(*here2)) && used_by(*there2).equal(used_by(*here2)), where + ": Sophia");
    }
}

RANK_BODY(caught_errors) {
  auto world = gannet::test::world();
  for (const Place& place : kPlaces) {
    const std::string where = text_of(place);
    auto expected = engine_of(two_pass_config(place, {{"gradient_accumulation_steps", 2}}));
    auto engine = engine_of(two_pass_config(place, {{"gradient_accumulation_steps", 2}}));
    const auto pass = [](auto& one, int64_t step, bool last) {
      for (int64_t micro = 0; micro < 2; ++micro) {
        backward(one, step, micro);
        last ? one.step() : one.perturb();
      }
    };
    for (int64_t step = 0; step < 3; ++step)
      for (const bool last : {false, true}) {
        pass(*expected, step, last);
        backward(*engine, step, 0);
        last ? engine->step() : engine->perturb();
        // the program's own exception in forward, caught; the pass is run again
        message_of([&] { engine->call([](auto&) -> at::Tensor { throw std::runtime_error("mine"); }); });
        auto [x, y] = batch_of(step, 1, engine->rank());
        auto loss = engine->forward(x, y);
        message_of([&] { engine->backward(loss * std::numeric_limits<double>::quiet_NaN()); });
        pass(*engine, step, last);
      }
    expect(parameters_of(*engine).equal(parameters_of(*expected)), where);
    // in the middle of a pass
    backward(*engine, 3, 0);
    engine->perturb();
    engine->abandon_step();
    pass(*engine, 3, false);
    backward(*engine, 3, 0);
    engine->step();
    engine->abandon_step();
    expect(parameters_of(*engine).equal(parameters_of(*expected)), where + ": abandoned");
    for (const bool last : {false, true}) {
      pass(*engine, 3, last);
      pass(*expected, 3, last);
    }
    expect(parameters_of(*engine).equal(parameters_of(*expected)), where + ": after");
    expect(engine->global_steps() == 4 && engine->skipped_steps() == 0, "steps");
  }
}

RANK_BODY(other_ways_backward) {
  auto world = gannet::test::world();
  for (const Place& place : kPlaces) {
    auto expected = engine_of(two_pass_config(place));
    auto engine = engine_of(two_pass_config(place));
    auto beside = make_uneven();
    torch::optim::SGD sgd(beside->parameters(), 0.1);
    for (int64_t step = 0; step < 3; ++step) {
      sam_step(*expected, step);
      for (const bool last : {false, true}) {
        auto [x, y] = batch_of(step, 0, engine->rank());
        auto loss = engine->forward(x, y);
        if (step == 0) torch::autograd::backward({engine->scale(loss)}, {});
        if (step == 1) engine->backward(loss, {.create_graph = true});
        if (step == 2) engine->backward(loss);
        // an evaluation and another optimizer's step between
        {
          const torch::NoGradGuard no_grad;
          engine->module()->eval();
          engine->forward(x, y);
          engine->module()->train();
        }
        sgd.zero_grad();
        beside->forward(x, y).backward();
        sgd.step();
        if (last)
          engine->step();
        else
          engine->perturb();
        {
          const torch::NoGradGuard no_grad;
          engine->forward(x, y);
        }
      }
    }
    expect(parameters_of(*engine).equal(parameters_of(*expected)),
           text_of(place) + ": off by " + std::to_string(difference(parameters_of(*engine), parameters_of(*expected))));
  }
}

class PassesShapes : public PassesTest {};

TEST_F(PassesShapes, OddShapesTiedWeightsAndClippingFollowTheReference) { run("odd_shapes", 2); }
TEST_F(PassesShapes, ParametersOnTiersMoveAlike) { run("param_tiers", 1); }
TEST_F(PassesShapes, ParametersOnTiersMoveAlikeOnTwoRanks) { run("param_tiers", 2); }
TEST_F(PassesShapes, ErrorsOfTheProgramBetweenThePassesAreOver) { run("caught_errors", 2); }
TEST_F(PassesShapes, OtherBackwardsAndEvaluationsBetweenThePasses) { run("other_ways_backward", 2); }

}  // namespace
