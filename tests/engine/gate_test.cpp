// The gate of calls: every public call in every state, beside the table.
#include "engine/gate.h"

#include <gannet/zero.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <sstream>

#include "engine/impl.h"
#include "engine/micro_batch.h"
#include "models.h"

namespace gannet::test {
namespace {

using gate::State;
using testing::HasSubstr;
using Net = Engine<NetImpl>;

std::string folder_of_test() { return testing::TempDir() + "/gate"; }

// Every call as a program writes it. Those that are refused in some cases only have a row more, which is named beside.
struct Asked {
  std::function<void(Net&)> call;
  std::vector<Call> rows;  // some row refuses it
};

std::map<Call, Asked> calls_of_a_program() {
  const auto [x, y] = make_batch(0, 4);
  const auto forward = [x = x, y = y](Net& engine) { engine.forward(x, y); };
  const auto loss = [](Net& engine) { return engine.module()->first->weight.sum(); };
  std::map<Call, Asked> calls;
  const auto add = [&](Call call, std::function<void(Net&)> body) { calls[call] = {std::move(body), {call}}; };
  add(Call::kForward, forward);
  add(Call::kEvaluatingForward, [forward](Net& engine) {
    const torch::NoGradGuard no_grad;
    forward(engine);
  });
  add(Call::kBackward, [loss](Net& engine) { engine.backward(loss(engine)); });
  add(Call::kScale, [loss](Net& engine) { engine.scale(loss(engine)); });
  add(Call::kAllreduceGradients, [](Net& engine) { engine.allreduce_gradients(); });
  add(Call::kStep, [](Net& engine) { engine.step(); });
  add(Call::kPerturb, [](Net& engine) { engine.perturb(); });
  add(Call::kKeepSecondGradient, [](Net& engine) { engine.keep_second_gradient(); });
  add(Call::kTrainBatch, [](Net& engine) { const MicroBatches batch(engine); });
  add(Call::kAbandonStep, [](Net& engine) { engine.abandon_step(); });
  add(Call::kZeroGrad, [](Net& engine) { engine.zero_grad(); });
  add(Call::kNoSync, [](Net& engine) { const EngineBase::NoSync scope(engine); });
  add(Call::kTrain, [](Net& engine) { engine.train(); });
  add(Call::kEval, [](Net& engine) { engine.eval(); });
  add(Call::kSaveCheckpoint, [](Net& engine) { engine.save_checkpoint(folder_of_test()); });
  add(Call::kLoadCheckpoint, [](Net& engine) { engine.load_checkpoint(folder_of_test(), {.if_present = true}); });
  add(Call::kSave16bitModel, [](Net& engine) { engine.save_16bit_model(folder_of_test()); });
  add(Call::kSaveFp32Model, [](Net& engine) { engine.save_fp32_model(folder_of_test()); });
  add(Call::kRefreshMasters, [](Net& engine) { engine.refresh_masters(); });
  add(Call::kSetFullFp32Parameter, [](Net& engine) { engine.set_full_fp32_parameter("first.bias", torch::zeros({16})); });
  add(Call::kGatheredParameters,
      [](Net& engine) { const zero::GatheredParameters guard(engine, engine.module()->parameters()); });
  add(Call::kGatheredParametersToWrite,
      [](Net& engine) { const zero::GatheredParameters guard(engine, engine.module()->parameters(), {.write_from = 0}); });
  add(Call::kSwapOptimizer, [](Net& engine) { engine.swap_optimizer("Lion", Dict{{"lr", 1e-3}}); });
  add(Call::kFullFp32Parameter, [](Net& engine) { engine.full_fp32_parameter("first.bias"); });
  add(Call::kFullGradient, [](Net& engine) { engine.full_gradient("first.bias"); });
  add(Call::kFullOptimizerState, [](Net& engine) { engine.full_optimizer_state("first.bias", "exp_avg"); });
  add(Call::kSetFullGradient, [](Net& engine) { engine.set_full_gradient("first.bias", torch::zeros({16})); });
  add(Call::kSetFullOptimizerState,
      [](Net& engine) { engine.set_full_optimizer_state("first.bias", "exp_avg", torch::zeros({16})); });
  add(Call::kFp32Parameters, [](Net& engine) { engine.fp32_parameters(); });
  add(Call::kFp32State, [](Net& engine) { engine.fp32_state(); });
  add(Call::kSetLr, [](Net& engine) { engine.set_lr(1e-3); });
  add(Call::kSetTrainBatchSize, [](Net& engine) { engine.set_train_batch_size(4); });
  add(Call::kSetTrainMicroBatchSize, [](Net& engine) { engine.set_train_micro_batch_size(4); });
  add(Call::kMean, [](Net& engine) { engine.mean(1.0); });
  add(Call::kGather, [](Net& engine) { engine.gather("text"); });
  return calls;
}

// How a program comes into a state: the call is made within.
struct Way {
  Dict config;
  std::function<void(Net& engine, const std::function<void()>& call)> within;
  std::string sentence;  // of the refusal
  bool inference = false;
};

void backward(Net& engine) {
  const auto [x, y] = make_batch(0, 4);
  engine.backward(engine.forward(x, y));
}

std::map<State, Way> ways() {
  const Dict plain = config_with({}), averaged = config_with({{"gannet", Dict{{"ema", Dict{{"decay", 0.9}}}}}});
  Dict sam = plain;
  sam["optimizer"] = Dict{{"type", "SAM"}, {"params", Dict{{"lr", 1e-2}}}};
  return {
      {State::kWithinBackward,
       {plain,
        [](Net& engine, const std::function<void()>& call) {
          std::exception_ptr failed;
          const auto [x, y] = make_batch(0, 4);
          const at::Tensor loss = engine.forward(x, y);
          const at::Tensor seen = loss * 1;
          seen.register_hook([&](const at::Tensor&) {
            try {
              call();
            } catch (...) {
              failed = std::current_exception();
            }
          });
          try {
            engine.backward(seen);
          } catch (const std::exception&) {  // what an allowed call did to the backward that it was in
          }
          if (failed) std::rethrow_exception(failed);
        },
        "within a backward of this engine"}},
      {State::kBatchFailed,
       {plain,
        [](Net& engine, const std::function<void()>& call) {
          {
            MicroBatches batch(engine);
            batch.abandon();
          }
          call();
        },
        "was called after train_batch() failed"}},
      {State::kBatchRuns,
       {plain,
        [](Net& engine, const std::function<void()>& call) {
          const MicroBatches batch(engine);
          call();
        },
        "was called within train_batch()"}},
      {State::kIsPipeline,
       {plain,
        [](Net& engine, const std::function<void()>& call) {
          train_by_driver_alone(engine);
          call();
        },
        "was called on the engine of a pipeline"}},
      {State::kTorn,
       {plain,
        [](Net& engine, const std::function<void()>& call) {
          engine.impl().progress.tear("an update failed");
          call();
        },
        "although parameter values are undefined: an update failed"}},
      {State::kTakenOver,
       {plain,
        [plain](Net& engine, const std::function<void()>& call) {
          const auto newer = initialize(engine.module(), {.config = plain}).engine;
          call();
        },
        "on an engine that has no parameters any more"}},
      {State::kEvaluationWeights,
       {averaged,
        [](Net& engine, const std::function<void()>& call) {
          backward(engine);
          engine.step();
          engine.eval();
          call();
        },
        "was called after eval()"}},
      {State::kBetweenPasses,
       {sam,
        [](Net& engine, const std::function<void()>& call) {
          backward(engine);
          engine.perturb();
          call();
        },
        "was called between perturb() and the step()"}},
      {State::kWriteGuard,
       {plain,
        [](Net& engine, const std::function<void()>& call) {
          const zero::GatheredParameters guard(engine, engine.module()->parameters(), {.write_from = 0});
          call();
        },
        "while a zero::GatheredParameters guard holds"}},
      {State::kNoSync,
       {plain,
        [](Net& engine, const std::function<void()>& call) {
          const EngineBase::NoSync scope(engine);
          call();
        },
        "was called inside no_sync()"}},
      {State::kNoOptimizer,
       {plain, [](Net&, const std::function<void()>& call) { call(); }, "but there is no optimizer", /*inference=*/true}},
      {State::kMicroBatch,
       {averaged,
        [](Net& engine, const std::function<void()>& call) {
          backward(engine);
          engine.step();  // eval() has other weights from here on
          const auto [x, y] = make_batch(1, 4);
          engine.forward(x, y);
          call();
        },
        "was called between forward() and step()"}},
      {State::kGradients,
       {plain,
        [](Net& engine, const std::function<void()>& call) {
          backward(engine);
          call();
        },
        "was called between backward() and step()"}},
  };
}

TEST(Gate, EveryCallInEveryStateIsWhatTheTableSays) {
  auto calls = calls_of_a_program();
  calls[Call::kEval].rows.push_back(Call::kEvalOfOtherWeights);  // where the state's engine has some
  const auto states = ways();
  ASSERT_EQ(states.size() + 1, static_cast<size_t>(State::kCount))
      << "kReadGuard takes several ranks: tests/zero/guards_test.cpp";
  ASSERT_EQ(calls.size() + 2, static_cast<size_t>(Call::kCount)) << "each call, but for those of other weights";
  int64_t refused = 0, allowed = 0;
  for (const auto& [state, way] : states)
    for (const auto& [call, asked] : calls) {
      const std::string where = std::string(name_of(call)) + " with \"" + way.sentence + "\"";
      const auto engine = initialize(make_net(), {.config = way.config, .inference = way.inference}).engine;
      const bool has_others = way.config.find("gannet") != nullptr;
      bool expected = false;
      for (const Call row : asked.rows)
        if (row != Call::kEvalOfOtherWeights || has_others) expected = expected || gate::refuses(state, row);
      std::string message = "no error";
      try {
        way.within(*engine, [&] {
          ASSERT_TRUE(gate::is_in(engine->impl(), state)) << where;
          asked.call(*engine);
        });
      } catch (const Error& error) {
        message = error.message();
        if (expected) {
          EXPECT_EQ(error.code(), ErrorCode::kOrder) << where;
          EXPECT_FALSE(error.next_step().empty()) << where;
        }
      } catch (const std::exception& error) {
        message = error.what();
      }
      if (expected)
        EXPECT_THAT(message, HasSubstr(way.sentence)) << where;
      else
        EXPECT_THAT(message, testing::Not(HasSubstr(way.sentence))) << where;
      ++(expected ? refused : allowed);
    }
  EXPECT_GT(refused, 100);
  EXPECT_GT(allowed, 100);
}

TEST(Gate, TheTableStandsInTheDocs) {
  std::ifstream file(GANNET_SOURCE_DIR "/docs/program.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_THAT(page.str(), HasSubstr(gate::table())) << "docs/program.md, Calls and states";
}

}  // namespace
}  // namespace gannet::test
