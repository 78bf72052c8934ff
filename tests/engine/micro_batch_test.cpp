// A layer above the engine, like a pipeline: micro-batches in flight, using only
// engine/micro_batch.h.
#include "engine/micro_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "models.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;

const Dict kFour = config_with({{"gradient_accumulation_steps", 4}, {"gradient_clipping", 0.5}});

// The step of a pipeline's first stage: two forwards, then a backward and a forward in turn.
StepResult train_batch(Engine<NetImpl>& engine, int64_t first) {
  MicroBatches batch(engine);
  const int64_t count = batch.count();
  std::vector<at::Tensor> losses(static_cast<size_t>(count));
  StepResult result;
  const auto forward = [&](int64_t i) {
    batch.forward(i, [&] {
      const auto [x, y] = make_batch(first + i, 4);
      losses[static_cast<size_t>(i)] = engine.module()->forward(x, y);
    });
  };
  const auto backward = [&](int64_t i) {
    const at::Tensor loss = losses[static_cast<size_t>(i)];
    batch.take_loss(loss);
    batch.backward(i, {{MicroBatches::edge_of(loss), batch.loss_gradient(loss)}});
    result = batch.end_micro_batch();
  };
  for (int64_t i = 0; i < std::min<int64_t>(2, count); ++i) forward(i);
  for (int64_t i = 0; i < count; ++i) {
    backward(i);
    if (i + 2 < count) forward(i + 2);
  }
  return result;
}

TEST(MicroBatches, TwoInFlightTrainAsOneAfterTheOther) {
  for (const char* precision : {"fp32", "bf16"}) {
    Dict config = kFour;
    if (std::string(precision) == "bf16") config["bf16"] = Dict{{"enabled", true}};
    const auto net = make_net(), plain = make_net();
    const auto engine = initialize(net, {.config = config}).engine;
    const auto loop = initialize(plain, {.config = config}).engine;
    for (int64_t step = 0; step < 5; ++step) {
      const StepResult result = train_batch(*engine, 4 * step);
      EXPECT_TRUE(result.boundary && result.applied) << result.reason;
      for (int64_t i = 0; i < 4; ++i) {
        const auto [x, y] = make_batch(4 * step + i, 4);
        loop->backward(loop->forward(x, y));
        loop->step();
      }
      EXPECT_EQ(engine->get_global_grad_norm(), loop->get_global_grad_norm());
    }
    EXPECT_TRUE(at::equal(flat_parameters(*net), flat_parameters(*plain))) << precision;
    EXPECT_EQ(engine->global_steps(), 5);
    EXPECT_EQ(engine->micro_steps(), 20);
  }
}

TEST(MicroBatches, RootsWithGradientsOfTheirOwnAreABackward) {
  const auto net = make_net(), plain = make_net();
  const auto engine = initialize(net, {.config = config_with({})}).engine;
  const auto loop = initialize(plain, {.config = config_with({})}).engine;
  const auto [x, y] = make_batch(0, 4);
  {
    MicroBatches batch(*engine);
    at::Tensor output;
    batch.forward(0, [&, x = x] { output = net->predict(x); });
    at::Tensor cut = output.detach().requires_grad_(true);  // what the next stage would have received
    torch::mse_loss(cut, y).backward();
    batch.backward(0, {{MicroBatches::edge_of(output), cut.grad()}});
    EXPECT_TRUE(batch.end_micro_batch().applied);
  }
  loop->backward(loop->forward(x, y));
  loop->step();
  EXPECT_TRUE(at::equal(flat_parameters(*net), flat_parameters(*plain)));
}

TEST(MicroBatches, AnExceptionGivesTheStepUpUntilALoad) {
  const std::string folder = testing::TempDir() + "/micro_batches";
  const auto net = make_net();
  const auto engine = initialize(net, {.config = kFour}).engine;
  EXPECT_TRUE(train_batch(*engine, 0).applied);
  engine->save_checkpoint(folder);
  const at::Tensor before = flat_parameters(*net).clone();
  EXPECT_THROW(
      {
        MicroBatches batch(*engine);
        batch.forward(0, [] { throw std::runtime_error("a layer fails"); });
      },
      std::runtime_error);
  EXPECT_TRUE(at::equal(flat_parameters(*net), before));
  const auto [x, y] = make_batch(0, 4);
  try {
    engine->forward(x, y);
    ADD_FAILURE() << "forward() was allowed";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("forward() was called after train_batch() failed in step 2"));
    EXPECT_THAT(error.next_step(), HasSubstr("load_checkpoint()"));
  }
  engine->load_checkpoint(folder);
  EXPECT_TRUE(train_batch(*engine, 4).applied);
}

std::string refused(Engine<NetImpl>& engine) {
  try {
    const MicroBatches batch(engine);
    return "it was allowed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOrder);
    return error.message();
  }
}

TEST(MicroBatches, AnEngineThatCouldNotStepIsRefusedAndStaysUsable) {
  const auto inference = initialize(make_net(), {.config = config_with({}), .inference = true}).engine;
  EXPECT_THAT(refused(*inference), HasSubstr("train_batch() was called, but there is no optimizer"));
  EXPECT_EQ(inference->mean(1.0), 1.0) << "the engine is free again";

  const auto engine = initialize(make_net(), {.config = kFour}).engine;
  {
    const EngineBase::NoSync scope(*engine);
    EXPECT_THAT(refused(*engine), HasSubstr("train_batch() was called inside no_sync()"));
  }
  engine->eval();
  EXPECT_THAT(refused(*engine), HasSubstr("train_batch() was called in evaluation mode"));
  engine->train();
  const auto [x, y] = make_batch(0, 4);
  engine->backward(engine->forward(x, y));
  EXPECT_THAT(refused(*engine), HasSubstr("train_batch() was called in the middle of step 1"));
  engine->step();
  EXPECT_THAT(refused(*engine), HasSubstr("in the middle of step 1")) << "one of four micro-batches has ended";
  engine->zero_grad();
  EXPECT_TRUE(train_batch(*engine, 0).applied);
}

}  // namespace
}  // namespace gannet::test
