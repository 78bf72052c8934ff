// Parameters of ZeRO stage 3 outside of training: under a guard, by name, and in an engine that only answers.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <thread>

#include "engine/impl.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

// ---- Outside of forward and backward -------------------------------------------------------------------------------------

RANK_BODY(guards) {
  for (const int64_t stage : {0, 1, 3})
    for (const char* dtype : {"fp32", "bf16"}) {
      auto engine = gannet::initialize(make_net(1, 37), {.config = stage3(stage, {}, dtype)}).engine;
      auto model = engine->module();
      const std::string what = "stage " + std::to_string(stage) + " in " + dtype + ", ";
      train(*engine, 1);
      if (stage == 3) {
        const std::string name = "parameter 'second.weight' is shared out among the ranks (ZeRO stage 3)";
        contains(message_of([&] { model->second->weight.norm(); }), name);
        contains(message_of([&] { model->second->weight.detach().t().contiguous(); }), name);
        contains(message_of([&] { model->second->weight.data_ptr(); }), name);
        ranks::same(model->second->weight.sizes().vec(), std::vector<int64_t>{4, 37}, "its shape stays");
      }
      const auto masters = engine->fp32_parameters();
      {
        gannet::zero::GatheredParameters whole(*engine, {model->second->weight});
        for (const auto& [name, master] : masters)
          if (name == "second.weight")
            expect(torch::equal(master.to(model->second->weight.scalar_type()), model->second->weight.detach()),
                   what + "the value");
      }
      {
        gannet::zero::GatheredParameters whole(*engine, model->parameters(), {.write_from = 1});
        torch::NoGradGuard no_grad;
        if (engine->rank() == 1)
          for (auto& parameter : model->parameters()) parameter.fill_(0.25);
      }
      for (const auto& [name, master] : engine->fp32_parameters())
        // A master whose rounding to 16 bits is the value was not changed by the write, and keeps its digits.
        expect(master.to(model->second->weight.scalar_type()).eq(0.25).all().item<bool>(), what + "written from rank 1: " + name);
      train(*engine, 1, 1);
      for (const auto& [name, master] : engine->fp32_parameters())
        if (name == "first.bias")
          expect((master - 0.25).abs().max().item<double>() < 3e-3, what + "training goes on from what was written");
      // An exception takes the writing back.
      const auto before = parameters_of(*engine);
      if (stage == 3)
        message_of([&] {
          gannet::zero::GatheredParameters whole(*engine, {model->first->weight}, {.write_from = 0});
          torch::NoGradGuard no_grad;
          model->first->weight.zero_();
          throw std::runtime_error("in the guard");
        });
      expect(torch::equal(parameters_of(*engine), before), what + "an exception ended the guard");
    }
}
TEST(Values, GuardsHaveParametersWhole) { ranks::expect_all_succeed(run_ranks("guards", 2)); }

// Takes the address of a parameter by itself: no operator, so nothing brings it.
struct ByAddressImpl : torch::nn::Module {
  ByAddressImpl() { weight = register_parameter("weight", torch::ones({37, 4})); }
  torch::Tensor forward(const torch::Tensor& x) { return x * *weight.data_ptr<float>(); }
  torch::Tensor weight;
};

// The exception of `body`, as Gannet's Error, and whether it was LibTorch's own.
std::pair<gannet::Error, bool> thrown_by(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    if (const auto ours = gannet::error_of(error)) return {*ours, !dynamic_cast<const gannet::Error*>(&error)};
    return {gannet::Error(gannet::ErrorCode::kInternal, std::string("not ours: ") + error.what()), true};
  }
  return {gannet::Error(gannet::ErrorCode::kInternal, "nothing was thrown"), false};
}

RANK_BODY(a_read_outside) {
  auto engine = gannet::initialize(make_net(1, 37), {.config = stage3()}).engine;
  train(*engine, 1);
  const torch::Tensor weight = engine->module()->second->weight;
  const auto expect_named = [&](const std::function<void()>& body, bool by_libtorch, const std::string& what) {
    const auto [error, is_theirs] = thrown_by(body);
    expect(error.code() == gannet::ErrorCode::kOrder && error.exit_code() == 2, what + ": " + error.what());
    ranks::same(error.message(), std::string("parameter 'second.weight' is shared out among the ranks (ZeRO stage 3)"), what);
    contains(error.next_step(), "read it in forward or backward");
    ranks::same(is_theirs, by_libtorch, what + ": thrown by LibTorch");
  };
  expect_named([&] { weight.norm(); }, false, "an operator");
  expect_named([&] { weight.sum().item<float>(); }, false, "a number");
  expect_named([&] { weight.clone(); }, false, "a copy");
  expect_named([&] { weight.detach().t().contiguous(); }, false, "a view that was taken outside");
  expect_named([&] { std::ostringstream() << weight; }, false, "printing");
  {
    torch::NoGradGuard no_grad;
    expect_named([&] { weight.add_(1); }, false, "writing");
  }
  expect_named([&] { weight.data_ptr<float>(); }, true, "an address");
  expect_named(
      [&] {
        std::exception_ptr thrown;
        std::thread([&] {
          try {
            weight.norm();
          } catch (...) {
            thrown = std::current_exception();
          }
        }).join();
        if (thrown) std::rethrow_exception(thrown);
      },
      true, "an operator of another thread");
  // Operations that read no bytes pass, and so do all on other tensors than parameters.
  ranks::same(weight.to(torch::kFloat).detach().view({-1}).numel(), int64_t{4 * 37}, "shapes");
  expect(torch::ones({3}).sum().item<double>() == 3, "other tensors");
  train(*engine, 1, 1);  // it trains on

  auto by_address = gannet::initialize(std::make_shared<ByAddressImpl>(), {.config = stage3()}).engine;
  const auto [error, is_theirs] = thrown_by([&] { by_address->forward(torch::ones({2})); });
  expect(error.code() == gannet::ErrorCode::kOrder && !is_theirs, error.what());
  contains(error.message(), "parameter 'weight' is shared out");
}
TEST(Values, ReadOutsideAreAnErrorWithTheParametersName) { ranks::expect_all_succeed(run_ranks("a_read_outside", 2)); }

RANK_BODY(guard_mistakes) {
  auto engine = gannet::initialize(make_net(1, 37), {.config = stage3()}).engine;
  auto model = engine->module();
  const bool first = engine->rank() == 0;
  contains(message_of(
               [&] { gannet::zero::GatheredParameters whole(*engine, {first ? model->first->weight : model->second->weight}); }),
           "rank 0 for parameters read first.weight, rank 1 for parameters read second.weight");
  contains(message_of(
               [&] { gannet::zero::GatheredParameters whole(*engine, {model->first->weight}, {.write_from = first ? 0u : 1u}); }),
           "written from rank 1");
  contains(message_of([&] { gannet::zero::GatheredParameters whole(*engine, {torch::ones({3})}); }),
           "shape [3] that is not a parameter");
  contains(message_of([&] { gannet::zero::GatheredParameters whole(*engine, {model->first->weight}, {.write_from = 9}); }),
           "write_from is rank 9");
  // Written in forward: lost, if it were let pass.
  struct Writes : torch::nn::Module {
    Writes() { weight = register_parameter("weight", torch::ones({8, 4})); }
    at::Tensor forward(const at::Tensor& x) {
      {
        torch::NoGradGuard no_grad;
        weight.mul_(0.5);
      }
      return torch::matmul(x, weight).sum();
    }
    at::Tensor weight;
  };
  auto writes = gannet::initialize(std::make_shared<Writes>(), {.config = stage3()}).engine;
  contains(message_of([&] { writes->forward(torch::ones({2, 8})); }), "operator aten::mul_ writes into parameter 'weight'");
}
TEST(Values, MistakesAreToldByName) { ranks::expect_all_succeed(run_ranks("guard_mistakes", 2)); }

// ---- Values by name ------------------------------------------------------------------------------------------------------

// Each stage gives what stage 0 gives, whole; the ranks' own parts are the whole, once.
RANK_BODY(accessors) {
  const auto values_of = [](int64_t stage, const std::string& dtype) {
    auto engine = gannet::initialize(make_net(1, 37), {.config = stage3(stage, {}, dtype)}).engine;
    train(*engine, 2);
    contains(message_of([&] { engine->full_gradient("first.weight"); }), "there is no gradient of 'first.weight' now");
    auto [x, y] = make_batch(engine->rank(), 4);
    engine->backward(engine->forward(x, y));
    std::map<std::string, at::Tensor> values;
    for (const auto& name : engine->parameter_names()) {
      values["parameter " + name] = engine->full_fp32_parameter(name);
      values["gradient " + name] = engine->full_gradient(name);
      for (const auto& state : engine->optimizer_states()) values[state + " " + name] = engine->full_optimizer_state(name, state);
      int64_t covered = 0;
      const auto check = [&](const gannet::EngineBase::Local& local, const std::string& kind) {
        const at::Tensor whole = values[kind + name].flatten();
        if (!local.values.defined()) return;
        covered += local.values.numel();
        expect(torch::equal(local.values, whole.narrow(0, local.begin, local.values.numel())),
               kind + name + ": this rank's part");
      };
      check(engine->local_fp32_parameter(name), "parameter ");
      check(engine->local_optimizer_state(name, "exp_avg"), "exp_avg ");
      check(engine->local_gradient(name), "gradient ");
      const double all = engine->mean(static_cast<double>(covered)) * engine->world_size(),
                   copies = stage == 0 ? engine->world_size() : 1;
      expect(all == 3.0 * static_cast<double>(values["parameter " + name].numel()) * copies, "the parts are the whole, once");
    }
    engine->step();
    // Written values are there, and training goes on from them.
    const at::Tensor half = torch::full({4, 37}, 0.5);
    engine->set_full_fp32_parameter("second.weight", half);
    engine->set_full_optimizer_state("second.weight", "exp_avg_sq", half * 0.01);
    expect(torch::equal(engine->full_fp32_parameter("second.weight"), half), "a written parameter");
    expect(torch::equal(engine->full_optimizer_state("second.weight", "exp_avg_sq"), half * 0.01), "a written state");
    train(*engine, 1, 5);
    values["after"] = engine->full_fp32_parameter("second.weight");
    contains(message_of([&] { engine->full_fp32_parameter("secnd.weight"); }), "did you mean 'second.weight'");
    contains(message_of([&] { engine->full_optimizer_state("second.weight", "velocity"); }), "exp_avg, exp_avg_sq");
    contains(message_of([&] { engine->set_full_fp32_parameter("second.weight", torch::ones({3})); }),
             "the parameter has [4, 37]");
    return values;
  };
  for (const char* dtype : {"fp32", "bf16"}) {
    const auto plain = values_of(0, dtype);
    for (const int64_t stage : {1, 2, 3})
      for (const auto& [name, value] : values_of(stage, dtype))
        expect(torch::allclose(value, plain.at(name), 1e-5, 1e-7),
               "stage " + std::to_string(stage) + " in " + dtype + ", " + name);
  }
}
TEST(Values, ValuesAreReadAndWrittenByName) { ranks::expect_all_succeed(run_ranks("accessors", 2)); }

// ---- Inference -----------------------------------------------------------------------------------------------------------

RANK_BODY(inference) {
  auto ranks_world = world();
  auto plain = make_net(1, 37);
  const bool first = ranks_world->rank() == 0;
  std::vector<std::string> lines;
  gannet::set_log_sink([&](gannet::LogLevel, const std::string& line) { lines.push_back(line); });
  auto engine = gannet::initialize(make_net(1, 37), {.config = stage3(), .inference = true}).engine;
  gannet::set_log_sink({});
  if (first)
    expect(
        std::any_of(lines.begin(), lines.end(), [](const auto& line) { return line.find("no effect: optimizer") != line.npos; }),
        "the optimizer's lack of effect is said");
  int64_t held = 0;
  for (const auto& range : engine->impl().store.frozen()) {
    held += range.param.numel();
    expect(!range.master.defined() && !range.grad.defined(), "nothing but parameters is kept");
  }
  expect(held <= (8 * 37 + 37 + 37 * 4 + 4) / static_cast<int64_t>(engine->world_size()) + 4 * 64,
         "a rank has its part: " + std::to_string(held));
  torch::NoGradGuard no_grad;
  auto [x, y] = make_batch(3, 4);
  expect(torch::equal(engine->forward(x, y), plain->forward(x, y)), "the same answer");
  contains(message_of([&] { engine->backward(torch::ones({1}, torch::requires_grad())); }), "there is no optimizer");
  // Texts of different lengths: rank r asks 2 + 3 r times, twice over.
  for (int round = 0; round < 2; ++round) {
    gannet::zero::AnswerUntilAllAreDone together(*engine);
    for (uint32_t i = 0; i < 2 + 3 * engine->rank(); ++i) {
      auto [x, y] = make_batch(10 * engine->rank() + i, 2);
      expect(torch::equal(engine->forward(x, y), plain->forward(x, y)), "an answer of a longer rank");
    }
  }
  expect(torch::equal(engine->forward(x, y), plain->forward(x, y)), "together again");
}
TEST(Values, AnswersWithoutAnOptimizerAndAtDifferentLengths) {
  for (const int count : {2, 3}) ranks::expect_all_succeed(run_ranks("inference", count));
}

}  // namespace
