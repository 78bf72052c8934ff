// Adafactor beside its published rule in tensor operations, and beside numbers of Hugging Face's implementation.
#include "optimizers/expected/adafactor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

#include "config/parse.h"
#include "optimizers/given.h"

namespace gannet::test {
namespace {

using ::testing::HasSubstr;

// A vector, a scalar, matrices, a stack of matrices.
const std::vector<std::vector<int64_t>> kAdafactorShapes = {{37, 19}, {37}, {}, {300, 8}, {5, 4, 3, 2}, {1, 6}, {6, 1}};

// Shazeer & Stern, algorithms 4 to 6, as transformers' Adafactor has them; vectors are not factored.
struct AdafactorReference {
  double lr = 0;  // 0: relative steps
  bool scale_parameter = true, warmup_init = false;
  double beta1 = -1, decay = 0, clip = 1, rate = -0.8;
  at::ScalarType dtype = at::kFloat;
  std::vector<at::Tensor> params, row, column, whole, first;
  int64_t steps = 0;

  void begin(const std::vector<at::Tensor>& values) {
    for (const auto& value : values) {
      const at::Tensor p = value.to(dtype, false, true);
      params.push_back(p);
      row.push_back(p.dim() < 2 ? at::Tensor() : torch::zeros_like(p.mean(-1)));
      column.push_back(p.dim() < 2 ? at::Tensor() : torch::zeros_like(p.mean(-2)));
      whole.push_back(torch::zeros_like(p));
      first.push_back(torch::zeros_like(p));
    }
  }
  static double size(const at::Tensor& t) { return std::sqrt(t.to(at::kDouble).square().mean().item<double>()); }
  void step(const std::vector<at::Tensor>& gradients) {
    ++steps;
    const double beta2 = 1 - std::pow(double(steps), rate);
    for (size_t i = 0; i < params.size(); ++i) {
      at::Tensor& p = params[i];
      const at::Tensor g = gradients[i].to(dtype), square = g.square() + 1e-30;
      at::Tensor u;
      if (p.dim() < 2) {
        whole[i] = beta2 * whole[i] + (1 - beta2) * square;
        u = g / whole[i].sqrt();
      } else {
        row[i] = beta2 * row[i] + (1 - beta2) * square.mean(-1);
        column[i] = beta2 * column[i] + (1 - beta2) * square.mean(-2);
        u = g * (row[i] / row[i].mean(-1, true)).rsqrt().unsqueeze(-1) * column[i].rsqrt().unsqueeze(-2);
      }
      double step_size = lr > 0 ? lr : std::min(warmup_init ? 1e-6 * double(steps) : 1e-2, 1 / std::sqrt(double(steps)));
      if (scale_parameter) step_size *= std::max(1e-3, size(p));
      u = u / std::max(1.0, size(u) / clip) * step_size;
      if (beta1 >= 0) u = first[i] = beta1 * first[i] + (1 - beta1) * u;
      p = p - decay * step_size * p - u;
    }
  }
};

void follow(const Dict& params, AdafactorReference same) {
  Given given(kAdafactorShapes, Dict{{"type", "Adafactor"}, {"params", params}});
  AdafactorReference exact = same;
  exact.dtype = at::kDouble;
  same.begin(given.values());
  exact.begin(given.values());
  for (int step = 0; step < 200; ++step) {
    given.step();
    same.step(given.module->gradients);
    exact.step(given.module->gradients);
  }
  const double off = distance(given.values(), same.params);
  std::cout << "Adafactor off by " << off << "; the fp32 reference is off by " << distance(same.params, exact.params)
            << " from fp64\n";
  // The sums of rows and columns are added in double here and in fp32 there: one rounding of 2^-24 for each term's place in a
  // sum, in each of 200 steps of at most 1% of a parameter.
  EXPECT_LT(off, 1e-6);
  EXPECT_LT(distance(given.values(), exact.params), 1e-6);
}

TEST(Adafactor, FollowsItsReferenceWithRelativeSteps) { follow(Dict{}, {}); }
TEST(Adafactor, FollowsItsReferenceWithALearningRateAndAFirstMoment) {
  follow(Dict{{"lr", 3e-3}, {"beta1", 0.9}, {"weight_decay", 0.1}, {"scale_parameter", false}},
         {.lr = 3e-3, .scale_parameter = false, .beta1 = 0.9, .decay = 0.1});
}
TEST(Adafactor, FollowsItsReferenceWithWarmUpClippingAndAnotherDecay) {
  follow(Dict{{"warmup_init", true}, {"clip_threshold", 0.5}, {"decay_rate", -0.7}},
         {.warmup_init = true, .clip = 0.5, .rate = -0.7});
}

TEST(Adafactor, GivesTheNumbersOfHuggingFaces) {
  for (const auto& expected : kExpectedAdafactor) {
    Given given({{2, 3}, {3}}, Dict{{"type", "Adafactor"}, {"params", config::parse_value(expected.params).as_dict()}});
    {
      torch::NoGradGuard no_grad;
      given.module->given[0].copy_(torch::tensor({0.5, -1.0, 2.0, 0.25, 3.0, -0.125}).view({2, 3}));
      given.module->given[1].copy_(torch::tensor({1.0, -0.5, 0.0}));
    }
    for (int step = 1; step <= 3; ++step) {
      given.module->gradients = {torch::tensor({0.1, -0.2, 0.3, 0.4, -0.5, 0.6}).view({2, 3}) * step,
                                 torch::tensor({-1.0, 0.5, 0.25}) / step};
      given.engine->backward(given.engine->forward(at::Tensor()));
      given.engine->step();
    }
    const auto values = torch::cat({given.module->given[0].flatten(), given.module->given[1]});
    for (int64_t i = 0; i < 9; ++i)
      EXPECT_NEAR(values[i].item<double>(), expected.values[i], 2e-6) << expected.params << " " << i;
  }
}

TEST(Adafactor, KeepsANumberPerRowAndColumn) {
  Given given(kAdafactorShapes, Dict{{"type", "Adafactor"}});
  given.step();
  EXPECT_TRUE(given.engine->optimizer_states().empty());  // none of each element
}

std::string refusal_of(const Dict& params) {
  try {
    Given given({{2}}, Dict{{"type", "Adafactor"}, {"params", params}});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Adafactor, RefusesParamsThatContradictOneAnother) {
  EXPECT_THAT(refusal_of(Dict{{"lr", 0.1}, {"relative_step", true}}), HasSubstr("remove one"));
  EXPECT_THAT(refusal_of(Dict{{"relative_step", false}}), HasSubstr("no 'lr' is given"));
  EXPECT_THAT(refusal_of(Dict{{"lr", 0.1}, {"warmup_init", true}}), HasSubstr("needs 'relative_step'"));
}

// The rate from a schedule or the program is a factor of the relative step.
TEST(Adafactor, ALearningRateThatIsSetScalesRelativeSteps) {
  Given whole({{37, 19}}, Dict{{"type", "Adafactor"}}), half({{37, 19}}, Dict{{"type", "Adafactor"}});
  EXPECT_EQ(half.engine->get_lr()[0], 1);
  half.engine->set_lr(0.5);
  const at::Tensor before = whole.values()[0];
  whole.step();
  half.step();
  EXPECT_LT(distance({(half.values()[0] - before) * 2}, {whole.values()[0] - before}), 1e-5);
}

}  // namespace
}  // namespace gannet::test
