// Mistakes of programs and of parts around an engine on the checked device, one a test: each is reported with the two operations,
// the two streams and the buffer. Those of the engine itself are omissions.py's.
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "accelerators/checked.h"
#include "accelerators/opened.h"
#include "engine/models.h"

namespace gannet::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

const c10::Stream kDefault(c10::Stream::DEFAULT, kChecked);

class PlantedFault : public testing::Test {
 protected:
  static void SetUpTestSuite() { const Opened checked("checked"); }  // before the CPU's first backward
  void SetUp() override {
    Dict config = config_with({{"accelerator", Dict{{"type", "checked"}}}});
    net = make_net();
    engine = initialize(net, {.config = config}).engine;
    step(0);
  }
  void TearDown() override {
    engine.reset();
    for (int i = 0; i < 2; ++i) {  // what the fault left behind is not the next test's
      try {
        opened->synchronize(0);
        torch::zeros({1}, kChecked);
      } catch (const std::exception&) {
      }
    }
  }
  at::Tensor loss_of(int64_t index) {
    const auto [x, y] = make_batch(index, 4);
    return engine->forward(x.to(kChecked), y.to(kChecked));
  }
  void step(int64_t index) {
    engine->backward(loss_of(index));
    ASSERT_TRUE(engine->step().applied);
  }
  std::string report_of(const std::function<void()>& run) {
    try {
      run();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "nothing was reported";
  }

  Opened opened{"checked"};
  std::shared_ptr<NetImpl> net;
  std::shared_ptr<Engine<NetImpl>> engine;
  c10::impl::VirtualGuardImpl streams{kChecked.type()};
  c10::Stream side = streams.getStreamFromGlobalPool(kChecked);
  const std::string on_side = "on stream " + std::to_string(side.id()) + " of device 0 ";
  const std::string on_default = "on stream 0 of device 0 ";
};

// The same things done right: nothing is reported.
TEST_F(PlantedFault, IsNoneWhereEventsOrderTheStreams) {
  const auto order = [&](const c10::Stream& earlier, const c10::Stream& later) {
    c10::Event event(kChecked.type());
    event.record(earlier);
    event.block(later);
  };
  reset_counters();
  for (int64_t index = 1; index < 4; ++index) {  // forward on a stream of its own, backward and step on the default one
    order(kDefault, side);
    at::Tensor loss;
    {
      const c10::StreamGuard guard(side);
      loss = loss_of(index);
    }
    order(side, kDefault);
    engine->backward(loss);
    EXPECT_TRUE(engine->step().applied);
    loss = at::Tensor();
  }
  opened->synchronize(0);
  torch::zeros({1}, kChecked);
  EXPECT_EQ(counters().at("races"), 0);
}

// 1. The loader's stream brings a batch, and forward does not wait for it.
TEST_F(PlantedFault, ABatchThatIsNotThereYet) {
  const auto [x, y] = make_batch(1, 4);
  at::Tensor there;
  {
    const c10::StreamGuard guard(side);
    there = x.to(kChecked);
    there.mul_(2);  // the host has waited for the copy, and not for this
  }
  EXPECT_THAT(
      report_of([&, &y = y] { engine->forward(there, y.to(kChecked)); }),
      AllOf(HasSubstr(on_default + "reads bytes that 'aten::mul."), HasSubstr(on_side + "writes"), HasSubstr("Float [4, 8]")));
}

// 2. The same from a thread of the program's, whose stream is its own.
TEST_F(PlantedFault, ABatchOfAThreadThatNobodyWaitsFor) {
  const auto [x, y] = make_batch(1, 4);
  const at::Tensor there = torch::empty({4, 8}, kChecked);
  opened->synchronize(0);
  std::thread([&, &x = x] {
    const c10::StreamGuard guard(side);
    there.copy_(x.pin_memory(), /*non_blocking=*/true);
  }).join();
  EXPECT_THAT(report_of([&, &y = y] { engine->forward(there, y.to(kChecked)); }),
              AllOf(HasSubstr(on_default + "reads bytes that 'aten::copy_'"), HasSubstr(on_side + "writes")));
}

// 3. A metric of the batch is computed beside forward, and the batch is freed under it.
TEST_F(PlantedFault, ABufferThatIsFreedWhileItIsRead) {
  at::Tensor batch = torch::ones({4, 8}, kChecked);
  c10::Event is_there(kChecked.type());
  is_there.record(kDefault);
  is_there.block(side);
  {
    const c10::StreamGuard guard(side);
    batch.sum();
  }
  batch = at::Tensor();  // without record_stream
  EXPECT_THAT(report_of([&] { loss_of(1); }), AllOf(HasSubstr("'free' " + on_default + "writes bytes that 'aten::sum"),
                                                    HasSubstr(on_side + "reads"), HasSubstr("Float [4, 8]")));
}

// 4. A copy of the gradients for a log begins on a queue of its own, at once.
TEST_F(PlantedFault, AGradientIsCopiedBeforeItIsComputed) {
  Queue log = opened->make_queue("log");
  std::vector<float> target(64);
  std::string report;
  const auto [x, y] = make_batch(1, 4);
  const at::Tensor input = x.to(kChecked).requires_grad_(true);
  const at::Tensor loss = engine->forward(input, y.to(kChecked));
  input.register_hook([&](const at::Tensor& gradient) {
    report = report_of([&] { log.copy(target.data(), gradient.const_data_ptr(), gradient.nbytes()); });
  });
  engine->backward(loss);
  EXPECT_THAT(report, AllOf(HasSubstr("'a copy to the host' on queue 'log' reads bytes that 'aten::mm"),
                            HasSubstr(on_default + "writes"), HasSubstr("Float [4, 8]")));
}

// 5. A snapshot of the parameters is still being copied when the optimizer writes them.
TEST_F(PlantedFault, ASnapshotThatTheUpdateDoesNotWaitFor) {
  Queue snapshot = opened->make_queue("snapshot");
  const at::Tensor weight = net->first->weight.detach();
  std::vector<float> target(static_cast<size_t>(weight.numel()));
  engine->backward(loss_of(1));
  snapshot.wait_stream(opened->native_stream(0, 0));
  snapshot.copy(target.data(), weight.const_data_ptr(), weight.nbytes());
  EXPECT_THAT(
      report_of([&] { engine->step(); }),
      AllOf(HasSubstr("'update of AdamW' " + on_default + "writes bytes that 'a copy to the host' on queue 'snapshot' reads"),
            HasSubstr("first.weight")));
}

// 6. The program evaluates on a stream of its own while the next step trains.
TEST_F(PlantedFault, AnEvaluationBesideAnUpdate) {
  c10::Event is_updated(kChecked.type());
  is_updated.record(kDefault);
  is_updated.block(side);
  const auto [x, y] = make_batch(7, 4);
  const at::Tensor there = x.to(kChecked);
  at::Tensor kept;
  {
    const torch::NoGradGuard no_grad;
    const c10::StreamGuard guard(side);
    kept = net->predict(there);
  }
  EXPECT_THAT(report_of([&] { step(1); }),
              AllOf(HasSubstr("'update of AdamW' " + on_default + "writes bytes that 'aten::"), HasSubstr(on_side + "reads")));
}

// 7. Parameters are written on another stream than the one that trains: an average that is swapped in.
TEST_F(PlantedFault, ParametersAreWrittenOnAnotherStream) {
  engine->backward(loss_of(1));
  engine->step();
  const torch::NoGradGuard no_grad;
  const c10::StreamGuard guard(side);
  EXPECT_THAT(report_of([&] { net->first->weight.mul_(0.5); }),
              AllOf(HasSubstr("'aten::mul"), HasSubstr(on_side + "writes bytes that 'update of AdamW' " + on_default + "writes"),
                    HasSubstr("first.weight")));
}

// 8. step() is called under another stream than backward().
TEST_F(PlantedFault, AStepOnAnotherStreamThanItsBackward) {
  engine->backward(loss_of(1));
  const c10::StreamGuard guard(side);
  EXPECT_THAT(report_of([&] { engine->step(); }),
              AllOf(HasSubstr(on_side), HasSubstr("bytes that 'aten::"), HasSubstr(on_default + "writes")));
}

TEST_F(PlantedFault, IsAnErrorOfTheDeviceWithANextStep) {
  at::Tensor late;
  const auto [x, y] = make_batch(1, 4);
  const at::Tensor target = y.to(kChecked), there = x.to(kChecked);
  {
    const c10::StreamGuard guard(side);
    late = there * 2;
  }
  try {
    engine->forward(late, target);
    FAIL() << "nothing was reported";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("the device reported an error in forward: 'aten::"),
                                    HasSubstr("let the later stream wait for an event"), Not(HasSubstr("frame #0"))));
  }
}

// A batch that was left on the host, and labels.
TEST_F(PlantedFault, WhatWasLeftOnTheHostIsNamedSo) {
  const auto [x, y] = make_batch(1, 4);
  for (const bool is_label : {false, true})
    EXPECT_THAT(
        report_of([&, &x = x, &y = y] { engine->forward(is_label ? x.to(kChecked) : x, is_label ? y : y.to(kChecked)); }),
        AllOf(HasSubstr("forward failed in an operator with tensors of two devices"),
              HasSubstr("the parameters are on checked:0"), HasSubstr("x.to(engine->device())"), Not(HasSubstr("frame #0"))));
}

// 9. The event is recorded before the last kernel that it should cover.
TEST_F(PlantedFault, AnEventThatIsRecordedTooEarly) {
  const auto [x, y] = make_batch(1, 4);
  const at::Tensor there = x.to(kChecked), target = y.to(kChecked);
  at::Tensor prepared;
  c10::Event is_there(kChecked.type());
  {
    const c10::StreamGuard guard(side);
    prepared = there * 2;
    is_there.record(side);
    prepared.add_(1);
  }
  is_there.block(kDefault);
  EXPECT_THAT(report_of([&] { engine->forward(prepared, target); }),
              AllOf(HasSubstr(on_default + "reads bytes that 'aten::add"), HasSubstr(on_side + "writes")));
}

// 10. A node of the model computes on its own stream, and waits only on the way in.
struct OnItsOwnStream : torch::autograd::Function<OnItsOwnStream> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x, const c10::Stream& stream) {
    c10::Event is_there(kChecked.type());
    is_there.record(kDefault);
    is_there.block(stream);
    const c10::StreamGuard guard(stream);
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list grads) {
    return {grads[0] * 2, at::Tensor()};
  }
};
TEST_F(PlantedFault, ANodeThatNobodyWaitsFor) {
  const auto [x, y] = make_batch(1, 4);
  const at::Tensor input = x.to(kChecked), target = y.to(kChecked);
  EXPECT_THAT(
      report_of([&] { engine->forward(OnItsOwnStream::apply(input, side), target); }),
      AllOf(HasSubstr(on_default + "reads bytes that 'aten::mul"), HasSubstr(on_side + "writes"), HasSubstr("Float [4, 8]")));
}

// 11. A gradient is kept by a hook for another stream, and the engine's memory for it is given back.
TEST_F(PlantedFault, AGradientThatAHookReadsOnAnotherStream) {
  const auto [x, y] = make_batch(1, 4);
  const at::Tensor loss = engine->forward(x.to(kChecked), y.to(kChecked));
  at::Tensor norm;
  net->second->weight.register_hook([&](const at::Tensor& gradient) {
    const c10::StreamGuard guard(side);
    norm = gradient.norm();
  });
  EXPECT_THAT(report_of([&] { engine->backward(loss); }),
              AllOf(HasSubstr("'aten::norm"), HasSubstr(on_side + "reads bytes that 'aten::"), HasSubstr(on_default + "writes")));
}

// 12. The host reads the loss in device memory; 13. the host reads a parameter.
using PlantedFaultDeathTest = PlantedFault;
TEST_F(PlantedFaultDeathTest, TheHostReadsALossOnTheDevice) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const at::Tensor loss = loss_of(1);
  const float* const value = loss.const_data_ptr<float>();
  EXPECT_EXIT(std::fprintf(stderr, "%f", static_cast<double>(*const_cast<volatile const float*>(value))),
              testing::KilledBySignal(SIGABRT), HasSubstr("the host uses device memory"));
}
TEST_F(PlantedFaultDeathTest, TheHostWritesAParameter) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto* const value = net->first->weight.data_ptr<float>();
  EXPECT_EXIT(*const_cast<volatile float*>(value + 5) = 1, testing::KilledBySignal(SIGABRT),
              AllOf(HasSubstr("the host uses device memory"), ContainsRegex("first.weight")));
}

}  // namespace
}  // namespace gannet::test
