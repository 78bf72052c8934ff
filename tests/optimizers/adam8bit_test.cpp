// AdamW8bit: its codes element by element, how much memory they take, and how near it stays to AdamW.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <iostream>

#include "engine/models.h"
#include "optimizers/adam8bit/codes.h"
#include "optimizers/given.h"

namespace gannet::test {
namespace {

using rules::kBlock;

const std::vector<std::vector<int64_t>> kAdam8bitShapes = {{37, 19}, {256}, {257}, {1}, {300, 8}};

Dict adamw8bit(const Dict& params) { return Dict{{"type", "AdamW8bit"}, {"params", params}}; }

// One tensor, element by element, every operation rounded to fp32 as the rule rounds it.
struct Adam8bitReference {
  double rate;
  float lr, decay, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f;
  std::vector<float> p;
  std::vector<int> first, second;
  std::vector<float> first_scale, second_scale;

  Adam8bitReference(const at::Tensor& value, double rate, double weight_decay)
      : rate(rate), lr(static_cast<float>(rate)), decay(static_cast<float>(weight_decay)) {
    const at::Tensor flat = value.flatten().contiguous();
    p.assign(flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
    first.assign(p.size(), 0);
    second.assign(p.size(), 0);
    first_scale.assign((p.size() + kBlock - 1) / kBlock, 0);
    second_scale = first_scale;
  }
  void step(const at::Tensor& gradient, int t) {
    const at::Tensor g = gradient.flatten().contiguous();
    const float step_size = static_cast<float>(-rate / (1 - std::pow(double(beta1), t)));
    const float root_bias = static_cast<float>(1 / std::sqrt(1 - std::pow(double(beta2), t)));
    for (size_t b = 0; b < first_scale.size(); ++b) {
      const size_t begin = b * kBlock, end = std::min(begin + kBlock, p.size());
      std::vector<float> m(end - begin), v(end - begin);
      const float of_first = first_scale[b] * (1 / (127.0f * 127.0f));
      const float of_second = second_scale[b] * (1 / (255.0f * 255.0f * 255.0f * 255.0f));
      for (size_t i = begin; i < end; ++i) {
        const float x = g.data_ptr<float>()[i], c = static_cast<float>(first[i]), s = static_cast<float>(second[i]);
        float& mi = m[i - begin];
        float& vi = v[i - begin];
        mi = std::fma(1 - beta1, x, beta1 * (c * std::fabs(c) * of_first));
        vi = std::fma(1 - beta2, x * x, beta2 * (s * s * (s * s) * of_second));
        p[i] = std::fma(-lr * decay, p[i], p[i]);
        p[i] = std::fma(mi / std::fma(std::sqrt(vi), root_bias, eps), step_size, p[i]);
      }
      first_scale[b] = second_scale[b] = 0;
      for (size_t i = 0; i < m.size(); ++i) {
        first_scale[b] = std::max(first_scale[b], std::fabs(m[i]));
        second_scale[b] = std::max(second_scale[b], v[i]);
      }
      const float by_first = first_scale[b] > 0 ? 1 / first_scale[b] : 0,
                  by_second = second_scale[b] > 0 ? 1 / second_scale[b] : 0;
      for (size_t i = 0; i < m.size(); ++i) {
        const float code = std::nearbyint(std::sqrt(std::fabs(m[i]) * by_first) * 127.0f);
        first[begin + i] = static_cast<int>(std::copysign(code, m[i]));
        const float square = std::sqrt(std::sqrt(v[i] * by_second)) * 255.0f;
        second[begin + i] = static_cast<int>(std::nearbyint(v[i] > 0 ? std::max(square, 1.0f) : square));
      }
    }
  }
};

TEST(Adam8bit, Follows200StepsOfAReferenceBitForBit) {
  if (!__builtin_cpu_supports("fma")) GTEST_SKIP() << "a processor without fused multiply-add rounds the products, too";
  Given given(kAdam8bitShapes, adamw8bit(Dict{{"lr", 1e-2}, {"weight_decay", 0.1}}));
  std::vector<Adam8bitReference> references;
  for (const auto& value : given.values()) references.emplace_back(value, 1e-2, 0.1);
  for (int step = 1; step <= 200; ++step) {
    given.step();
    for (size_t i = 0; i < references.size(); ++i) references[i].step(given.module->gradients[i], step);
  }
  for (size_t i = 0; i < references.size(); ++i) {
    const at::Tensor flat = given.values()[i].flatten().contiguous();
    for (size_t k = 0; k < references[i].p.size(); ++k)
      ASSERT_EQ(flat.data_ptr<float>()[k], references[i].p[k]) << "tensor " << i << ", element " << k;
  }
}

// Blocks of zeros, of one magnitude, of many, and with elements that are zero or far below the others.
at::Tensor gradients_of_all_magnitudes(int64_t blocks, int64_t step) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step));
  at::Tensor all = torch::randn({blocks, static_cast<int64_t>(kBlock)}, generator);
  for (int64_t b = 0; b < blocks; ++b) {
    at::Tensor block = all[b];
    if (b % 5 == 0 && step % 3) block.zero_();
    if (b % 5 == 1) block.mul_(torch::pow(10.0, -12 * torch::rand({static_cast<int64_t>(kBlock)}, generator)));
    if (b % 5 == 2) block.mul_(torch::rand({static_cast<int64_t>(kBlock)}, generator) < 0.3);
    if (b % 5 == 3) block.mul_(std::pow(10.0, static_cast<double>(step % 12) - 9));
  }
  return all.flatten();
}

// Codes are decided by estimates of roots; none differs from that of the roots themselves, on any SIMD target.
TEST(Adam8bit, GivesEveryElementTheCodeOfItsExactRoots) {
  if (!__builtin_cpu_supports("fma")) GTEST_SKIP() << "a processor without fused multiply-add rounds the products, too";
  constexpr int64_t kBlocks = 500, kLast = 37;  // and a part of one
  for (const int64_t target : {HWY_AVX2, HWY_AVX3}) {
    if (!(hwy::SupportedTargets() & target)) continue;
    hwy::GetChosenTarget().Update(target);
    Given given({{kBlocks * static_cast<int64_t>(kBlock) + kLast}}, adamw8bit(Dict{{"lr", 1e-3}, {"weight_decay", 0.0}}));
    Adam8bitReference reference(given.values()[0], 1e-3, 0.0);
    for (int step = 1; step <= 12; ++step) {
      given.module->gradients[0] = gradients_of_all_magnitudes(kBlocks + 1, step).narrow(0, 0, kBlocks * kBlock + kLast);
      given.engine->backward(given.engine->forward(at::Tensor()));
      given.engine->step();
      reference.step(given.module->gradients[0], step);
      const at::Tensor first = given.engine->full_optimizer_state("p0", "exp_avg_8bit").to(at::kInt).contiguous();
      const at::Tensor second = given.engine->full_optimizer_state("p0", "exp_avg_sq_8bit").to(at::kInt).contiguous();
      for (size_t i = 0; i < reference.first.size(); ++i) {
        ASSERT_EQ(first.data_ptr<int>()[i], reference.first[i]) << "target " << target << ", step " << step << ", element " << i;
        ASSERT_EQ(second.data_ptr<int>()[i], reference.second[i])
            << "target " << target << ", step " << step << ", element " << i;
      }
    }
    hwy::GetChosenTarget().DeInit();
  }
}

TEST(Adam8bit, KeepsTwoBytesAndAThirtySecondOfAnElement) {
  Given given({{1024, 256}}, adamw8bit(Dict{}));
  given.step();
  double bytes = 0;
  for (const std::string& name : given.engine->optimizer_states()) {
    const at::Tensor state = given.engine->full_optimizer_state("p0", name);
    EXPECT_EQ(state.element_size(), 1) << name;
    bytes += static_cast<double>(state.nbytes());
  }
  bytes += 2 * 4 * 1024.0 * 256 / kBlock;
  EXPECT_LE(bytes / (1024 * 256), 2.1);
}

// A regression whose loss falls by two orders of magnitude: within 1% of AdamW's at its end.
TEST(Adam8bit, LearnsAsAdamWDoes) {
  const auto loss_of = [](const Dict& optimizer) {
    Dict config{{"train_micro_batch_size_per_gpu", 32}, {"accelerator", Dict{{"type", "cpu"}}}, {"optimizer", optimizer}};
    auto engine = initialize(make_net(3, 64), {.config = config}).engine;
    double last = 0;
    for (int step = 0; step < 500; ++step) {
      auto [x, y] = make_batch(step % 8, 32);
      auto loss = engine->forward(x, y);
      engine->backward(loss);
      engine->step();
      if (step >= 492) last += loss.item<double>() / 8;
    }
    return last;
  };
  const double full = loss_of(Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-3}, {"weight_decay", 0.01}}}});
  const double small = loss_of(adamw8bit(Dict{{"lr", 1e-3}}));
  std::cout << "after 500 steps: AdamW " << full << ", AdamW8bit " << small << "\n";
  EXPECT_NEAR(small / full, 1, 0.01);
}

// Blocks of adjacent tensors would be shared: the layout of the run has to leave room between them.
TEST(Adam8bit, IsRefusedWhereTheRunBeganWithoutRoomForItsBlocks) {
  Given given(kAdam8bitShapes, Dict{{"type", "SGD"}, {"params", Dict{{"lr", 0.1}}}});
  given.step();
  try {
    given.engine->swap_optimizer("AdamW8bit", Dict{{"lr", 0.01}});
    FAIL() << "it was swapped in";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("ranges at multiples of 256 elements"));
  }
  given.step();
  Given back(kAdam8bitShapes, adamw8bit(Dict{{"lr", 0.01}}));
  back.step();
  back.engine->swap_optimizer("SGD", Dict{{"lr", 0.1}});
  back.step();
  back.engine->swap_optimizer("AdamW8bit", Dict{{"lr", 0.01}});
  back.step();
}

TEST(Adam8bit, LeavesATensorWithoutGradientsAlone) {
  Given given({{300}}, adamw8bit(Dict{{"weight_decay", 0.0}}));
  const at::Tensor before = given.values()[0];
  given.module->gradients[0] = torch::zeros({300});
  given.engine->backward(given.engine->forward(at::Tensor()));
  given.engine->step();
  EXPECT_TRUE(torch::equal(given.values()[0], before));
}

}  // namespace
}  // namespace gannet::test
