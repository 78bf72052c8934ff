// Programs that use an engine from several threads, throw on one rank only, or pass in something
// that LibTorch cannot train: equal to the plain order, or an error with the calls, threads, ranks
// and parameters in it.
#include <c10/core/InferenceMode.h>
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <iostream>
#include <thread>

#include "plugin/support.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::EngineBase;
using ranks::expect;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

std::shared_ptr<gannet::Engine<NetImpl>> engine_at(int64_t stage, const std::string& dtype = "fp32") {
  return gannet::initialize(make_net(), {.config = stage3(stage, {}, dtype)}).engine;
}

at::Tensor loss_of(gannet::Engine<NetImpl>& engine, int64_t step) {
  auto [x, y] = make_batch(step * engine.world_size() + engine.rank(), 4);
  return engine.forward(x, y);
}

template <class Body>
auto on_a_thread(Body body) {
  return std::async(std::launch::async, body).get();
}

// From a thread of its own, while this one is in a call of the engine.
std::string told_elsewhere(const std::function<void()>& body) {
  return on_a_thread([&] { return message_of(body); });
}

TEST(Threads, ACallWhileAnotherThreadIsInOneNamesBoth) {
  const TemporaryFolder folder;
  for (const int64_t stage : {0, 2, 3}) {
    auto engine = engine_at(stage), plain = engine_at(stage);
    train(*engine, 2);
    train(*plain, 2);
    std::map<std::string, std::string> told;
    bool is_first = true;
    engine->add_state(
        "asks",
        [&] {
          if (!std::exchange(is_first, false)) return gannet::Value();
          at::Tensor loss = at::ones({}).requires_grad_();
          told["forward"] = told_elsewhere([&] { loss_of(*engine, 0); });
          told["backward"] = told_elsewhere([&] { engine->backward(loss); });
          told["scale"] = told_elsewhere([&] { engine->scale(loss); });
          told["step"] = told_elsewhere([&] { engine->step(); });
          told["zero_grad"] = told_elsewhere([&] { engine->zero_grad(); });
          told["eval"] = told_elsewhere([&] { engine->eval(); });
          told["save_checkpoint"] = told_elsewhere([&] { engine->save_checkpoint(folder.string() + "/other"); });
          told["load_checkpoint"] = told_elsewhere([&] { engine->load_checkpoint(folder.string()); });
          told["swap_optimizer"] = told_elsewhere([&] { engine->swap_optimizer("SGD", R"({"lr": 0.1})"); });
          told["fp32_parameters"] = told_elsewhere([&] { engine->fp32_parameters(); });
          told["full_fp32_parameter"] = told_elsewhere([&] { engine->full_fp32_parameter("first.bias"); });
          told["zero::GatheredParameters"] =
              told_elsewhere([&] { const gannet::zero::GatheredParameters whole(*engine, engine->module()->parameters(), {}); });
          told["save_fp32_model"] = told_elsewhere([&] { engine->save_fp32_model(folder.string()); });
          EXPECT_EQ(engine->fp32_parameters().size(), 4u) << "the thread that is inside may call";
          return gannet::Value();
        },
        [](const gannet::Value&) {});
    engine->save_checkpoint(folder.string() + "/" + std::to_string(stage));
    EXPECT_EQ(told.size(), 13u);
    for (const auto& [call, text] : told)
      EXPECT_THAT(text, HasSubstr(call + "() was called while another thread is in save_checkpoint() of this engine")) << stage;
    at::Tensor loss = engine->call([&](NetImpl& net) {
      EXPECT_THAT(told_elsewhere([&] { engine->step(); }),
                  HasSubstr("step() was called while another thread is in forward() of this engine"));
      auto [x, y] = make_batch(2, 4);
      return net.forward(x, y);
    });
    engine->backward(loss);
    engine->step();
    train(*plain, 1, 2);
    EXPECT_TRUE(parameters_of(*engine).equal(parameters_of(*plain))) << "what was refused has left nothing, stage " << stage;
  }
}

// An error within a call ends it.
TEST(Threads, AfterAnErrorAnotherThreadMayCall) {
  auto engine = engine_at(0);
  EXPECT_THROW(engine->call([](NetImpl&) -> at::Tensor { throw std::runtime_error("a bad sample"); }), std::runtime_error);
  EXPECT_THAT(message_of([&] { engine->step(); }), HasSubstr("step() was called before"));
  EXPECT_THAT(message_of([&] { engine->load_checkpoint("nowhere"); }), HasSubstr("nowhere"));
  on_a_thread([&] {
    train(*engine, 1);
    return 0;
  });
  EXPECT_EQ(engine->global_steps(), 1);
}

// It is random which calls win. The loser gets an error of ours, or LibTorch's error for a loss
// whose parameters another step has changed; none reports an internal defect or a lack of memory.
TEST(Threads, TwoThatTrainOneEngineGetNoUntrueText) {
  for (const int64_t stage : {0, 3}) {
    auto engine = engine_at(stage);
    std::set<std::string> told[2];
    const auto run = [&](int i) {
      for (int64_t step = 0; step < 150; ++step) {
        at::Tensor loss;
        for (const std::function<void()>& call :
             std::vector<std::function<void()>>{[&] { loss = loss_of(*engine, step); }, [&] { engine->backward(loss); },
                                                [&] { engine->step(); }, [&] { engine->zero_grad(); }})
          if (const std::string text = message_of(call); !text.empty()) told[i].insert(text);
      }
    };
    std::thread one(run, 0), two(run, 1);
    one.join();
    two.join();
    for (const auto& each : told)
      for (const std::string& text : each)
        EXPECT_THAT(text,
                    testing::Not(testing::AnyOf(HasSubstr("defect"), HasSubstr("check failed"), HasSubstr("enough memory"))))
            << stage;
  }
}

// Forward, backward and step on threads of their own, each over when the next one starts: ids of threads come again.
RANK_BODY(each_call_on_a_thread) {
  auto world = gannet::test::world();
  for (const int64_t stage : {0, 2, 3}) {
    auto engine = engine_at(stage), plain = engine_at(stage);
    for (int64_t step = 0; step < 3; ++step) {
      const at::Tensor loss = on_a_thread([&] { return loss_of(*engine, step); });
      on_a_thread([&] {
        engine->backward(loss);
        return 0;
      });
      expect(on_a_thread([&] { return engine->step().applied; }), "a step is taken");
    }
    train(*plain, 3);
    expect(parameters_of(*engine).equal(parameters_of(*plain)), "the bits of one thread, stage " + std::to_string(stage));
  }
}
TEST(Threads, ForwardBackwardAndStepMayHaveOneEach) { ranks::expect_all_succeed(ranks::run_ranks("each_call_on_a_thread", 2)); }

RANK_BODY(a_part_of_forward_elsewhere) {
  auto world = gannet::test::world();
  auto engine = engine_at(3);
  auto [x, y] = make_batch(engine->rank(), 4);
  const auto forward = [&, x = x](bool is_guarded) {
    return engine->call([&](NetImpl& net) {
      const at::Tensor hidden = on_a_thread([&] {
        const auto guard = is_guarded ? engine->guard() : nullptr;
        return torch::tanh(net.first(x));
      });
      return net.second(hidden).square().mean();
    });
  };
  const std::string told = message_of([&] { forward(false); });
  contains(told, "'first.");
  contains(told, "read it in forward or backward on the thread that called them, on another thread under engine->guard()");
  expect(std::isfinite(forward(true).item<double>()), "and so it is");
}
TEST(Threads, APartOfForwardOnAnotherThreadIsToldOfTheGuard) {
  ranks::expect_all_succeed(ranks::run_ranks("a_part_of_forward_elsewhere", 2));
}

// ---- ranks that differ

RANK_BODY(one_rank_errs) {
  auto world = gannet::test::world();
  const std::string deed = variable("DEED");
  auto engine = engine_at(std::stoll(variable("STAGE")));
  train(*engine, 1);
  const std::string told = message_of([&] {
    for (int64_t step = 1; step < 4; ++step) {
      if (step == 2 && world->rank() == 1 && deed == "freeze") engine->module()->first->bias.requires_grad_(false);
      if (step == 2 && world->rank() == 1 && deed == "write") {
        torch::NoGradGuard no_grad;
        engine->module()->first->bias.fill_(0.3);
      }
      try {
        const at::Tensor loss = engine->call([&](NetImpl& net) -> at::Tensor {
          if (step == 2 && world->rank() == 1 && deed == "throw") throw std::runtime_error("a bad sample");
          auto [x, y] = make_batch(step * 2 + world->rank(), 4);
          return net.forward(x, y);
        });
        engine->backward(loss);
        engine->step();
      } catch (const std::runtime_error& error) {
        if (std::string(error.what()) != "a bad sample") throw;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // a verdict is on its way
    engine->backward(loss_of(*engine, 9));
  });
  std::cout << "told: " << told << std::endl;
  expect(!told.empty(), "rank " + std::to_string(world->rank()) + " is told");
}

TEST(RanksDiffer, InAnExceptionOfForwardThatOneCaught) {
  for (const std::string stage : {"0", "1", "2"}) {
    const auto outcomes = ranks::run_ranks("one_rank_errs", 2, {.environment = {{"DEED", "throw"}, {"STAGE", stage}}});
    ranks::expect_all_succeed(outcomes);
    for (const auto& outcome : outcomes)
      EXPECT_THAT(outcome.output,
                  ContainsRegex("the number of errors that were caught is (1 on rank 1 and 0 on rank 0|0 on rank 0 "
                                "and 1 on rank 1)"))
          << stage;
  }
}

TEST(RanksDiffer, InAWriteWhichIsNamed) {
  const auto outcomes = ranks::run_ranks("one_rank_errs", 2, {.environment = {{"DEED", "write"}, {"STAGE", "0"}}});
  ranks::expect_all_succeed(outcomes);
  for (const auto& outcome : outcomes)
    EXPECT_THAT(outcome.output,
                AllOf(HasSubstr("what the program wrote into parameters and its optimizer since the last step is "),
                      ContainsRegex("'first.bias' \\(bits [0-9a-f]{16}\\) on rank 1"), HasSubstr("nothing on rank 0")));
}

TEST(RanksDiffer, InWhatIsFrozenWhichIsNamed) {
  const auto outcomes = ranks::run_ranks("one_rank_errs", 2, {.environment = {{"DEED", "freeze"}, {"STAGE", "0"}}});
  ranks::expect_all_succeed(outcomes);
  for (const auto& outcome : outcomes)
    EXPECT_THAT(outcome.output,
                AllOf(HasSubstr("which parameters require a gradient is "),
                      ContainsRegex("all but 'first.bias' \\(bits [0-9a-f]{16}\\) on rank 1"), HasSubstr("all on rank 0")));
}

// ---- what LibTorch cannot train

TEST(Guests, AModuleOfInferenceModeIsNamed) {
  std::shared_ptr<NetImpl> net;
  {
    const c10::InferenceMode inference;
    net = make_net();
  }
  for (const int64_t stage : {0, 3}) {
    const std::string told = message_of([&] { gannet::initialize(net, {.config = stage3(stage)}); });
    EXPECT_THAT(told, AllOf(HasSubstr("parameter 'first.weight' was made under c10::InferenceMode"),
                            testing::Not(HasSubstr("version counter"))))
        << stage;
  }
}

// An engine that does not train takes it, as LibTorch does: at stage 3 its parameters are given other memory.
TEST(Guests, AModuleOfInferenceModeIsEvaluated) {
  for (const int64_t stage : {0, 3}) {
    const c10::InferenceMode inference;
    auto net = make_net();
    auto [x, y] = make_batch(0, 4);
    const double expected = net->forward(x, y).item<double>();
    auto engine = gannet::initialize(net, {.config = stage3(stage), .inference = true}).engine;
    EXPECT_EQ(engine->forward(x, y).item<double>(), expected) << stage;
  }
}

TEST(Guests, ABackwardOfAnOlderLossSaysSo) {
  auto engine = engine_at(0);
  const at::Tensor fresh = make_net()->forward(make_batch(0, 4).first, make_batch(0, 4).second);
  EXPECT_THAT(message_of([&] { engine->backward(fresh); }), HasSubstr("backward() was called before forward()"));
  at::Tensor without_graph;
  {
    const torch::NoGradGuard no_grad;
    without_graph = loss_of(*engine, 0);
  }
  EXPECT_THAT(message_of([&] { engine->backward(without_graph); }), HasSubstr("does not depend on any parameter"));
  const at::Tensor older = loss_of(*engine, 0);
  engine->backward(older, {.retain_graph = true});
  engine->step();
  EXPECT_THAT(message_of([&] { engine->backward(older); }),
              HasSubstr("backward() was called before the forward() of its micro-batch: this loss is of a micro-batch that has "
                        "ended, or of the module's own forward"));
  train(*engine, 1, 1);
  EXPECT_EQ(engine->global_steps(), 2);
}

}  // namespace
