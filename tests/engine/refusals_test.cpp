// What the engine refuses, and how it says so: calls out of order, losses and gradients that are not
// finite, models and numbers that cannot be trained with, LibTorch's own errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;

TEST(Engine, SaysWhatIsOutOfOrder) {
  auto engine = initialize(make_net(), {.config = config_with({})}).engine;
  auto [x, y] = make_batch(0, 4);
  auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOrder);
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(message([&] { engine->step(); }), HasSubstr("step() was called before forward() and backward()"));
  EXPECT_THAT(message([&] { engine->backward(torch::ones({}, torch::requires_grad())); }), HasSubstr("before forward()"));
  const at::Tensor loss = engine->forward(x, y);
  EXPECT_THAT(message([&] { engine->step(); }), HasSubstr("before backward()"));
  engine->backward(loss);
  {
    auto scope = engine->no_sync();
    EXPECT_THAT(message([&] { engine->step(); }), HasSubstr("inside no_sync()"));
    EXPECT_THAT(message([&] { engine->no_sync(); }), HasSubstr("entered twice"));
  }
  EXPECT_TRUE(engine->step().applied);
}

TEST(Engine, RefusesLossesThatCannotBeDifferentiated) {
  auto engine = initialize(make_net(), {.config = config_with({})}).engine;
  auto [x, y] = make_batch(0, 4);
  const at::Tensor loss = engine->forward(x, y);
  EXPECT_THROW(engine->backward(loss.detach()), Error);
  EXPECT_THROW(engine->backward(torch::stack({loss, loss})), Error);
  EXPECT_THROW(engine->backward(at::Tensor()), Error);
  engine->backward(loss);
}

TEST(Engine, StopsAtANanLossWithTheParametersUnharmed) {
  auto net = make_net();
  auto engine = initialize(net, {.config = config_with({})}).engine;
  const at::Tensor before = flat_parameters(*net);
  auto [x, y] = make_batch(0, 4);
  try {
    engine->backward(engine->forward(x / 0, y));
    FAIL() << "a NaN loss passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNonFinite);
    EXPECT_THAT(error.what(), HasSubstr("the loss of step 1 is"));
  }
  EXPECT_TRUE(torch::equal(flat_parameters(*net), before));
  engine->backward(engine->forward(x, y));  // the engine still trains
  EXPECT_TRUE(engine->step().applied);
}

TEST(Engine, NamesTheFirstNonFiniteGradient) {
  auto net = make_net();
  auto engine = initialize(net, {.config = config_with({})}).engine;
  net->second->weight.register_hook([](at::Tensor grad) {
    at::Tensor changed = grad.clone();
    changed.view({-1})[5] = std::numeric_limits<float>::infinity();
    return changed;
  });
  auto [x, y] = make_batch(0, 4);
  engine->backward(engine->forward(x, y));
  try {
    engine->step();
    FAIL() << "an infinite gradient passed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the gradient of 'second.weight' is inf at element 5"));
  }
}

TEST(Engine, RefusesModelsThatCannotBeTrained) {
  struct Empty : torch::nn::Module {
    at::Tensor forward(at::Tensor x) { return x; }
  };
  EXPECT_THROW(initialize(std::make_shared<Empty>(), {.config = config_with({})}), Error);
  auto frozen = make_net();
  for (auto& parameter : frozen->parameters()) parameter.requires_grad_(false);
  EXPECT_THROW(initialize(frozen, {.config = config_with({})}), Error);
  auto net = make_net();
  EXPECT_THROW(initialize(net, {.config = config_with({}),
                                .model_parameters = {{net->parameters(), {}, "a"}, {{net->first->weight}, {}, "b"}}}),
               Error);
  EXPECT_THROW(initialize(make_net(), {}), Error);
}

// Numbers that torch.optim refuses: by the config, by a group in code, by the handle and by set_lr.
TEST(Engine, RefusesNumbersThatNoOptimizerTakes) {
  using testing::HasSubstr;
  const auto message_of = [](const std::function<void()>& body) -> std::string {
    try {
      body();
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  };
  const auto with = [](const Dict& params) { return config_with({{"optimizer", Dict{{"type", "AdamW"}, {"params", params}}}}); };
  for (const char* name : {"lr", "weight_decay", "eps"}) {
    const std::string told = message_of([&] { initialize(make_net(), {.config = with({{name, -0.1}})}); });
    EXPECT_THAT(told, testing::AllOf(HasSubstr(name), HasSubstr("expected a number >= 0, found -0.1")));
  }
  auto net = make_net();
  EXPECT_THAT(message_of([&] {
                initialize(net, {.config = with({}), .model_parameters = {{net->parameters(), Dict{{"lr", -1.0}}, "all"}}});
              }),
              HasSubstr("expected a number >= 0, found -1"));
  auto [engine, optimizer, loader, scheduler] = initialize(net, {.config = with({{"lr", 0.5}})});
  const auto set = [&, optimizer = optimizer](const char* name, double value) {
    return message_of([&] { optimizer->group(0).set(name, value); });
  };
  EXPECT_THAT(set("betas[0]", 1.5), HasSubstr("'betas[0]' of parameter group"));
  EXPECT_THAT(set("betas[0]", 1.5), HasSubstr("expected a number >= 0 and < 1, found 1.5"));
  EXPECT_THAT(set("betas[1]", -0.1), HasSubstr("found -0.1"));
  EXPECT_THAT(set("lr", -1), HasSubstr("found -1"));
  EXPECT_THAT(set("weight_decay", -1), HasSubstr("found -1"));
  EXPECT_THAT(set("lr", std::nan("")), HasSubstr("finite"));
  EXPECT_THAT(message_of([&, engine = engine] { engine->set_lr(-1e-3); }), HasSubstr("found -0.001"));
  EXPECT_EQ(engine->get_lr(), std::vector<double>{0.5});
  EXPECT_EQ(set("lr", 0), "");
  EXPECT_EQ(set("betas[0]", 0), "");

  auto own = make_net();
  auto adam = std::make_shared<torch::optim::AdamW>(own->parameters(), torch::optim::AdamWOptions(1e-2));
  const auto with_own = initialize(own, {.config = config_with({}), .optimizer = adam});
  EXPECT_THAT(message_of([&] { with_own.optimizer->group(0).set("lr", -1); }), HasSubstr("expected a number >= 0, found -1"));
}

// Throws LibTorch's exceptions for failing memory or a failing device, at the place that each name
// gives.
struct FailingImpl : NetImpl {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y, const std::string& how) {
    if (how == "host") at::empty({int64_t{1} << 55});
    if (how == "device") TORCH_CHECK_WITH(OutOfMemoryError, false, "the card is full. Tried to allocate 2.00 GiB.");
    if (how == "assert") throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 710, "device-side assert triggered");
    if (how == "shapes") x.view({-1, 3, 7});
    if (how == "own") throw std::out_of_range("no such sample");
    at::Tensor loss = NetImpl::forward(x, y);
    if (how == "backward")
      loss.register_hook([](const at::Tensor&) -> at::Tensor { TORCH_CHECK_WITH(OutOfMemoryError, false, "the card is full"); });
    return loss;
  }
};

TEST(Engine, LibTorchsErrorsOfMemoryAndDeviceAreOursWhereTheyLeaveACall) {
  auto engine = initialize(std::make_shared<FailingImpl>(), {.config = config_with({})}).engine;
  const auto [x, y] = make_batch(0, 4);
  const auto error = [&](const std::string& how) {
    try {
      engine->backward(engine->forward(x, y, how));
    } catch (const Error& caught) {
      engine->zero_grad();
      return caught;
    }
    return Error(ErrorCode::kInternal, "nothing of ours was thrown");
  };
  for (const auto& [how, text] :
       {std::pair{"host", "there is not enough memory in forward: "},
        {"device", "there is not enough memory in forward: the card is full. Tried to allocate 2.00 GiB."},
        {"backward", "there is not enough memory in backward: the card is full"}}) {
    const Error caught = error(how);
    EXPECT_EQ(caught.code(), ErrorCode::kOutOfMemory) << how;
    EXPECT_EQ(caught.exit_code(), 3);
    EXPECT_THAT(caught.message(), testing::StartsWith(text));
    EXPECT_THAT(caught.message(), testing::Not(HasSubstr("\n"))) << "a C++ stack";
    EXPECT_THAT(caught.next_step(), HasSubstr("train_micro_batch_size_per_gpu"));
  }
  EXPECT_EQ(error("assert").code(), ErrorCode::kDevice);
  EXPECT_EQ(error("assert").exit_code(), 3);
  EXPECT_EQ(error("assert").message(), "the device reported an error in forward: device-side assert triggered");
  EXPECT_THROW(engine->forward(x, y, "shapes"), c10::Error) << "the program's own mistake, with LibTorch's own words";
  EXPECT_THROW(engine->forward(x, y, "own"), std::out_of_range);
  engine->zero_grad();
  engine->backward(engine->forward(x, y, ""));
  EXPECT_TRUE(engine->step().applied) << "the engine still trains";
}

}  // namespace
}  // namespace gannet::test
