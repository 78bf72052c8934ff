#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;

Dict sixteen_bit(const char* kind, std::initializer_list<Dict::Entry> more = {}) {
  Dict block{{"enabled", true}};
  for (const auto& [key, value] : more) block[key] = value;
  return config_with({{kind, block}});
}

TEST(Precision, SixteenBitTrainingKeepsFp32MastersAndLearns) {
  for (const char* kind : {"bf16", "fp16"}) {
    auto net = make_net();
    auto engine = initialize(net, {.config = sixteen_bit(kind)}).engine;
    const auto dtype = std::string(kind) == "bf16" ? torch::kBFloat16 : torch::kHalf;
    EXPECT_EQ(net->first->weight.scalar_type(), dtype);
    auto [x, y] = make_batch(0, 4);
    double first = 0, last = 0;
    for (int step = 0; step < 40; ++step) {
      const at::Tensor loss = engine->forward(x, y);
      engine->backward(loss);
      engine->step();
      (step == 0 ? first : last) = loss.item<double>();
    }
    EXPECT_LT(last, first / 4) << kind;
    for (const auto& [name, master] : engine->fp32_parameters()) {
      EXPECT_EQ(master.scalar_type(), torch::kFloat);
      const at::Tensor parameter = net->named_parameters()[name];
      EXPECT_TRUE(torch::equal(master.to(dtype), parameter)) << name << ": the copy is the rounded master";
      EXPECT_FALSE(torch::equal(parameter.to(torch::kFloat), master)) << name << ": the master has more digits";
    }
  }
}

// A forward that does not cast what it is given.
struct PlainImpl : NetImpl {
  at::Tensor predict_from(const at::Tensor& x) { return second(torch::tanh(first(x))); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) { return torch::mse_loss(predict_from(x), y); }
};

struct NormedImpl : torch::nn::Module {
  torch::nn::LayerNorm norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
  at::Tensor forward(const at::Tensor& x) { return norm(x).sum(); }
};

TEST(Precision, AnInputOfAnotherDtypeIntoANormalizationNamesTheSectionToo) {
  auto engine = initialize(std::make_shared<NormedImpl>(), {.config = sixteen_bit("bf16")}).engine;
  try {
    engine->forward(torch::ones({4, 8}));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("mixed dtype"), HasSubstr("bf16.enabled = true (code)")));
  }
}

TEST(Precision, InputsOfAnotherDtypeNameTheSectionOfTheConfig) {
  for (const char* kind : {"bf16", "fp16"}) {
    SCOPED_TRACE(kind);
    const auto dtype = std::string(kind) == "bf16" ? at::kBFloat16 : at::kHalf;
    auto engine = initialize(std::make_shared<PlainImpl>(), {.config = sixteen_bit(kind)}).engine;
    const auto [x, y] = make_batch(0, 4);
    const auto said = [&](const auto& body) {
      try {
        body();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kMismatch);
        return std::string(error.what());
      }
      return std::string("no error");
    };
    const auto names_it =
        testing::AllOf(HasSubstr(std::string(kind) + ".enabled = true (code)"),
                       HasSubstr(dtype == at::kHalf ? "x.to(at::kHalf)" : "x.to(at::kBFloat16)"), HasSubstr("torch_autocast"));
    EXPECT_THAT(said([&, &x = x, &y = y] { engine->forward(x, y); }),
                testing::AllOf(names_it, HasSubstr("forward failed in an operator with tensors of two dtypes: mat1 and mat2")));
    // Labels that are not cast fail where their gradient is computed.
    EXPECT_THAT(said([&, &x = x, &y = y] { engine->backward(engine->forward(x.to(dtype), y)); }),
                TORCH_VERSION_MINOR < 15 ? testing::Matcher<std::string>(testing::AllOf(names_it, HasSubstr("backward failed")))
                                         : testing::Matcher<std::string>(testing::Eq("no error")));  // it casts them itself
    engine->backward(engine->forward(x.to(dtype), y.to(dtype)));                                     // the engine is as it was
    EXPECT_NO_THROW(engine->step());
  }
  auto engine = initialize(std::make_shared<PlainImpl>(), {.config = config_with({})}).engine;
  const auto [x, y] = make_batch(0, 4);
  EXPECT_THROW(engine->forward(x.to(at::kDouble), y), c10::Error) << "the config did not choose this dtype";
}

// An LSTM's kernel is oneDNN's, which says nothing of types.
TEST(Precision, AnLstmsInputOfAnotherDtypeNamesTheSectionToo) {
  struct Recurrent : torch::nn::Module {
    Recurrent() { lstm = register_module("lstm", torch::nn::LSTM(8, 4)); }
    at::Tensor forward(const at::Tensor& x) { return std::get<0>(lstm(x.unsqueeze(1))).to(at::kFloat).pow(2).mean(); }
    torch::nn::LSTM lstm{nullptr};
  };
  const auto engine = initialize(std::make_shared<Recurrent>(), {.config = sixteen_bit("bf16")}).engine;
  const at::Tensor x = make_batch(0, 4).first;
  try {
    engine->forward(x);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMismatch);
    EXPECT_THAT(error.what(),
                testing::AllOf(HasSubstr("LSTM"), HasSubstr("bf16.enabled = true (code)"), HasSubstr("x.to(at::kBFloat16)")));
  }
  engine->backward(engine->forward(x.to(at::kBFloat16)));
  EXPECT_TRUE(engine->step().applied);
}

TEST(Precision, AnOverflowSkipsTheStepNamesTheGradientAndLowersTheScale) {
  auto net = make_net();
  auto engine = initialize(net, {.config = sixteen_bit("fp16", {{"initial_scale_power", 15}, {"hysteresis", 1}})}).engine;
  bool poison = true;
  net->first->bias.register_hook([&](at::Tensor grad) { return poison ? grad / 0 : grad; });
  auto [x, y] = make_batch(0, 4);
  const at::Tensor before = flat_parameters(*net);
  engine->backward(engine->forward(x, y));
  const StepResult result = engine->step();
  EXPECT_FALSE(result.applied);
  EXPECT_TRUE(result.boundary);
  EXPECT_THAT(result.reason, HasSubstr("the gradient of 'first.bias' is"));
  EXPECT_THAT(result.reason, HasSubstr("the loss scale goes from 32768 to 16384"));
  EXPECT_FALSE(engine->was_step_applied());
  EXPECT_EQ(engine->skipped_steps(), 1);
  EXPECT_EQ(engine->global_steps(), 1);
  EXPECT_EQ(engine->loss_scale(), 16384);
  EXPECT_TRUE(torch::equal(flat_parameters(*net), before));
  poison = false;
  engine->backward(engine->forward(x, y));
  EXPECT_TRUE(engine->step().applied);
  EXPECT_FALSE(torch::equal(flat_parameters(*net), before));
}

TEST(Precision, TheScaleDoesNotChangeTheUpdate) {
  auto run = [](double power) {
    auto net = make_net();
    auto engine = initialize(net, {.config = sixteen_bit("fp16", {{"initial_scale_power", power}})}).engine;
    for (int step = 0; step < 5; ++step) {
      auto [x, y] = make_batch(step, 4);
      engine->backward(engine->forward(x, y));
      EXPECT_TRUE(engine->step().applied);
    }
    at::Tensor masters = torch::cat([&] {
      std::vector<at::Tensor> parts;
      for (auto& [name, value] : engine->fp32_parameters()) parts.push_back(value.flatten());
      return parts;
    }());
    return masters.clone();
  };
  const at::Tensor low = run(4), high = run(10);
  EXPECT_LT(((low - high).norm() / low.norm()).item<double>(), 2e-3);
}

TEST(Precision, GradientsAccumulateInTheDtypeThatTheConfigNames) {
  auto run = [](const char* dtype) {
    auto net = make_net();
    Dict config = sixteen_bit("bf16");
    config["gradient_accumulation_steps"] = 8;
    config["data_types"] = Dict{{"grad_accum_dtype", dtype}};
    auto engine = initialize(net, {.config = config}).engine;
    for (int micro = 0; micro < 8; ++micro) {
      auto [x, y] = make_batch(micro, 4);
      engine->backward(engine->forward(x, y));
      engine->step();
    }
    return *engine->get_global_grad_norm();
  };
  const double wide = run("fp32"), narrow = run("bf16");
  EXPECT_NE(wide, narrow);
  EXPECT_NEAR(narrow, wide, 0.02 * wide);
}

TEST(Precision, BuffersKeepTheirDtypeUnlessTheConfigNamesOne) {
  struct WithBuffer : torch::nn::Module {
    WithBuffer() {
      layer = register_module("layer", torch::nn::Linear(2, 2));
      table = register_buffer("table", torch::ones({3}));
      count = register_buffer("count", torch::ones({1}, torch::kLong));
    }
    at::Tensor forward(at::Tensor x) { return layer(x); }
    torch::nn::Linear layer{nullptr};
    at::Tensor table, count;
  };
  auto kept = std::make_shared<WithBuffer>();
  initialize(kept, {.config = sixteen_bit("bf16")});
  EXPECT_EQ(kept->table.scalar_type(), torch::kFloat);
  auto cast = std::make_shared<WithBuffer>();
  Dict config = sixteen_bit("bf16");
  config["data_types"] = Dict{{"buffer_dtype", "bf16"}};
  initialize(cast, {.config = config});
  EXPECT_EQ(cast->table.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(cast->count.scalar_type(), torch::kLong);
}

TEST(Precision, RepeatedSkipsWithoutADynamicScaleBecomeAnError) {
  auto net = make_net();
  Dict config = sixteen_bit("bf16");
  config["gannet"] = Dict{{"max_consecutive_skips", 2}};
  auto engine = initialize(net, {.config = config}).engine;
  net->first->bias.register_hook([](at::Tensor grad) { return grad / 0; });
  auto [x, y] = make_batch(0, 4);
  auto step = [&] {
    engine->backward(engine->forward(x, y));
    return engine->step();
  };
  EXPECT_FALSE(step().applied);
  EXPECT_FALSE(step().applied);
  EXPECT_THROW(step(), Error);
}

}  // namespace
}  // namespace gannet::test
