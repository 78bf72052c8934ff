// Guarantees of every element-wise optimizer of ours, independent of its rule: types, conversions,
// tails, cuts, threads.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>

#include "optimizers/update_case.h"

namespace gannet::test {
namespace {

struct Rule {
  const char* file;
  const char* name;
  Dict params;
  size_t states;
};
std::vector<Rule> rules() {
  return {{"optimizer_adam", "AdamW", Dict{{"weight_decay", 0.1}}, 2},
          {"optimizer_adam", "Adam", Dict{{"adam_w_mode", false}, {"weight_decay", 0.1}}, 2},
          {"optimizer_adam", "AdamW", Dict{{"torch_adam", true}}, 2},
          {"optimizer_sgd", "SGD", Dict{}, 0},
          {"optimizer_sgd", "SGD", Dict{{"momentum", 0.9}, {"weight_decay", 0.1}}, 1},
          {"optimizer_sgd", "SGD", Dict{{"momentum", 0.9}, {"nesterov", true}}, 1},
          {"optimizer_lion", "Lion", Dict{{"weight_decay", 0.1}}, 1},
          {"optimizer_adagrad", "Adagrad", Dict{{"weight_decay", 0.1}}, 1},
          {"optimizer_nadam", "NAdam", Dict{{"weight_decay", 0.1}}, 2},
          {"optimizer_rmsprop", "RMSprop", Dict{}, 1},
          {"optimizer_rmsprop", "RMSprop", Dict{{"momentum", 0.9}, {"weight_decay", 0.1}}, 2},
          {"optimizer_rmsprop", "RMSprop", Dict{{"momentum", 0.9}, {"centered", true}}, 3},
          {"optimizer_adan", "Adan", Dict{{"weight_decay", 0.1}}, 4},
          {"optimizer_adabelief", "AdaBelief", Dict{{"weight_decay", 0.1}}, 2},
          {"optimizer_adabelief", "AdaBelief", Dict{{"rectify", false}, {"weight_decouple", false}, {"weight_decay", 0.1}}, 2},
          // k 2: of the tests' steps 2 and 3, one moves the slow weights, and a parameter that is no number into them.
          {"optimizer_lookahead", "LookaheadAdamW", Dict{{"weight_decay", 0.1}, {"k", 2}}, 3},
          {"optimizer_lookahead", "LookaheadSGD", Dict{{"weight_decay", 0.1}, {"k", 2}}, 2}};
}

// Runs the rest of a scope with the kernels of one SIMD target.
class WithTarget {
 public:
  explicit WithTarget(int64_t target) { hwy::GetChosenTarget().Update(target); }
  ~WithTarget() { hwy::GetChosenTarget().DeInit(); }
};
// Those of this CPU that the kernels are compiled for, and the fallback without SIMD (0).
std::vector<int64_t> targets() {
  std::vector<int64_t> found = {0};
  for (int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_NEON})
    if (hwy::SupportedTargets() & target) found.push_back(target);
  return found;
}

TEST(Elementwise, TakesTheTenCombinationsOfTypesAndNoOther) {
  TestHost host;
  for (const auto& rule : rules()) {
    OptimizerUnderTest optimizer(LoadedPlugin(rule.file, rule.name), rule.params, host);
    int taken = 0;
    for (uint32_t param = 0; param <= GANNET_BOOL; ++param)
      for (uint32_t grad = 0; grad <= GANNET_BOOL; ++grad)
        for (uint32_t out = 0; out <= GANNET_BOOL; ++out) taken += optimizer.supports(param, grad, out);
    EXPECT_EQ(taken, static_cast<int>(kAllTypes.size()));
    for (const auto& types : kAllTypes) EXPECT_TRUE(optimizer.supports(types.param, types.grad, types.out));
  }
}

TEST(Elementwise, AnElementsResultDoesNotDependOnLengthOrCuts) {
  TestHost host;
  for (int64_t target : targets()) {
    WithTarget with(target);
    for (const auto& rule : rules()) {
      OptimizerUnderTest optimizer(LoadedPlugin(rule.file, rule.name), rule.params, host);
      for (const auto& types : kAllTypes) {
        UpdateCase whole(types, 200, rule.states);
        UpdateCase each = whole;
        const UpdateCase start = whole;
        whole.update(optimizer, 3);
        for (uint64_t i = 0; i < each.numel; ++i) each.update(optimizer, 3, i, i + 1);
        ASSERT_TRUE(whole.same_result(each)) << rule.name << " one by one, target " << target;
        for (uint64_t cut = 0; cut <= whole.numel; ++cut) {
          UpdateCase parts = start;
          parts.update(optimizer, 3, 0, cut);
          parts.update(optimizer, 3, cut, parts.numel);
          ASSERT_TRUE(whole.same_result(parts)) << rule.name << " cut at " << cut << ", target " << target;
        }
      }
    }
  }
}

TEST(Elementwise, WritesNothingBeyondItsRange) {
  TestHost host;
  for (const auto& rule : rules()) {
    OptimizerUnderTest optimizer(LoadedPlugin(rule.file, rule.name), rule.params, host);
    for (const auto& types : kAllTypes) {
      for (uint64_t length = 0; length <= 70; ++length) {
        UpdateCase done(types, 200, rule.states);
        const UpdateCase start = done;
        done.update(optimizer, 3, 60, 60 + length);
        for (uint64_t i = 0; i < done.numel; ++i) {
          if (i >= 60 && i < 60 + length) continue;
          ASSERT_EQ(done.param.get(i), start.param.get(i)) << i;
          if (types.out != GANNET_DTYPE_NONE) ASSERT_EQ(done.out.get(i), 0) << i;
          for (size_t s = 0; s < rule.states; ++s) ASSERT_EQ(done.states[s].get(i), start.states[s].get(i)) << i;
        }
        ASSERT_EQ(std::memcmp(done.grad.at(0), const_cast<UpdateCase&>(start).grad.at(0), 200 * bytes_of(types.grad)), 0);
      }
    }
  }
}

TEST(Elementwise, TheResultDoesNotDependOnTheNumberOfThreads) {
  TestHost host;
  OptimizerUnderTest optimizer(LoadedPlugin("optimizer_adam", "AdamW"), {}, host);
  const UpdateCase start({GANNET_FLOAT32, GANNET_BFLOAT16, GANNET_BFLOAT16}, 100'003, 2);
  UpdateCase reference = start;
  host.pieces = 1;
  reference.update(optimizer, 1);
  for (uint64_t pieces : {0, 2, 3, 7, 64}) {
    host.pieces = pieces;
    UpdateCase cut = start;
    cut.update(optimizer, 1);
    EXPECT_TRUE(cut.same_result(reference)) << pieces;
  }
}

// A large range whose copy is aligned is written past the caches: the same bytes.
TEST(Elementwise, ALargeRangeGivesWhatSmallOnesGive) {
  TestHost host;
  OptimizerUnderTest sgd(LoadedPlugin("optimizer_sgd", "SGD"), {}, host);
  for (uint32_t out : {GANNET_BFLOAT16, GANNET_FLOAT16}) {
    UpdateCase large({GANNET_FLOAT32, GANNET_BFLOAT16, out}, (1 << 22) + 1000, 0);
    UpdateCase pieces = large;
    uint64_t begin = 0;
    while (reinterpret_cast<uintptr_t>(large.out.at(begin)) % 64 != 0) ++begin;
    large.update(sgd, 1, begin, large.numel);
    for (uint64_t at = begin; at < pieces.numel; at += 65537) pieces.update(sgd, 1, at, std::min(at + 65537, pieces.numel));
    EXPECT_TRUE(large.same_result(pieces));
  }
}

// SGD with lr -1 from parameter 0 makes the parameter the gradient, as it was read.
TEST(Elementwise, ReadsEverySixteenBitGradientExactly) {
  TestHost host;
  OptimizerUnderTest sgd(LoadedPlugin("optimizer_sgd", "SGD"), Dict{{"lr", -1.0}}, host);
  for (int64_t target : targets()) {
    WithTarget with(target);
    for (uint32_t dtype : {GANNET_FLOAT16, GANNET_BFLOAT16}) {
      UpdateCase all({GANNET_FLOAT32, dtype, GANNET_DTYPE_NONE}, 65536, 0);
      for (uint32_t i = 0; i < 65536; ++i) {
        const auto bits = static_cast<uint16_t>(i);
        std::memcpy(all.grad.at(i), &bits, 2);
        all.param.set(i, 0);
      }
      all.update(sgd, 1);
      for (uint32_t i = 0; i < 65536; ++i) {
        const double expected = all.grad.get(i);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(all.param.get(i))) << i;
        } else {
          ASSERT_EQ(all.param.get(i), expected) << "bits " << i << ", dtype " << dtype << ", target " << target;
        }
      }
    }
  }
}

// SGD with lr 0 keeps the parameter and writes its copy. c10's conversions round to nearest even.
TEST(Elementwise, RoundsTheCopyToNearestEvenAndKeepsNaN) {
  TestHost host;
  OptimizerUnderTest sgd(LoadedPlugin("optimizer_sgd", "SGD"), Dict{{"lr", 0.0}}, host);
  std::mt19937 random(7);
  for (int64_t target : targets()) {
    WithTarget with(target);
    for (uint32_t dtype : {GANNET_FLOAT16, GANNET_BFLOAT16}) {
      constexpr uint64_t kCount = 1 << 18;
      UpdateCase all({GANNET_FLOAT32, GANNET_FLOAT32, dtype}, kCount, 0);
      for (uint64_t i = 0; i < kCount; ++i) {
        // Every upper half, with the lower halves around which rounding turns, for both formats.
        const uint32_t lows[] = {
            0, 1, 0x7fff, 0x8000, 0x8001, 0x1000, 0x2fff, 0x3000, 0x3001, 0xffff, static_cast<uint32_t>(random() & 0xffff)};
        const uint32_t bits = static_cast<uint32_t>(i & 0xffff) << 16 | lows[random() % 11];
        std::memcpy(all.param.at(i), &bits, 4);
        all.grad.set(i, 0);
      }
      all.update(sgd, 1);
      Buffer expected(dtype, 1);
      for (uint64_t i = 0; i < kCount; ++i) {
        expected.set(0, all.param.get(i));
        if (std::isnan(all.param.get(i))) {
          ASSERT_TRUE(std::isnan(all.out.get(i)));
        } else {
          ASSERT_EQ(all.out.get(i), expected.get(0)) << all.param.get(i) << ", dtype " << dtype << ", target " << target;
        }
      }
    }
  }
}

TEST(Elementwise, ANotANumberInTheGradientReachesParameterStatesAndCopyOfThatElementAlone) {
  TestHost host;
  for (const auto& rule : rules()) {
    OptimizerUnderTest optimizer(LoadedPlugin(rule.file, rule.name), rule.params, host);
    for (const auto& types : kAllTypes) {
      UpdateCase poisoned(types, 100, rule.states);
      // An average of squares is above the square of the average, as in a run: its root is a number.
      for (uint64_t i = 0; i < poisoned.numel && rule.states > 0; ++i) poisoned.states[0].set(i, 1);
      for (uint64_t bad : {0, 37, 99}) poisoned.grad.set(bad, std::nan(""));
      poisoned.update(optimizer, 2);
      for (uint64_t i = 0; i < poisoned.numel; ++i) {
        const bool bad = i == 0 || i == 37 || i == 99;
        ASSERT_EQ(std::isnan(poisoned.param.get(i)), bad) << i;
        if (types.out != GANNET_DTYPE_NONE) ASSERT_EQ(std::isnan(poisoned.out.get(i)), bad) << i;
        for (auto& state : poisoned.states) ASSERT_EQ(std::isnan(state.get(i)), bad) << i;
      }
    }
  }
}

// Without Highway: the loop that a compiler vectorises, from the same files. Highway's targets
// below AVX2 have no fused multiply-add, so that they round one more time.
TEST(Elementwise, PlainLoopsGiveTheBitsOfHighways) {
  if (!(hwy::SupportedTargets() & (HWY_AVX2 | HWY_NEON))) GTEST_SKIP() << "this processor has no fused multiply-add";
  TestHost host;
  const std::string folder = GANNET_BINARY_DIR "/tests/plugins/gannet_test_plain_";
  for (const auto& rule : rules()) {
    const std::string plain = folder + (rule.file + std::string("optimizer_").size()) + ".so";
    if (plain.find("plain_adam") == std::string::npos && plain.find("plain_rmsprop") == std::string::npos) continue;
    OptimizerUnderTest ours(LoadedPlugin(rule.file, rule.name), rule.params, host);
    OptimizerUnderTest theirs(LoadedPlugin(plain, rule.name), rule.params, host);
    for (const auto& types : kAllTypes) {
      UpdateCase highway(types, 1003, rule.states);
      for (uint64_t i = 0; i < highway.numel; ++i) highway.states[0].set(i, 1);
      UpdateCase loops = highway;
      for (uint64_t step = 1; step <= 5; ++step) {
        highway.update(ours, step);
        loops.update(theirs, step);
      }
      EXPECT_TRUE(loops.same_result(highway)) << rule.name << ", gradient " << types.grad << ", copy " << types.out;
    }
  }
}

TEST(Elementwise, GradScaleIsTheSameAsAScaledGradient) {
  TestHost host;
  for (const auto& rule : rules()) {
    OptimizerUnderTest optimizer(LoadedPlugin(rule.file, rule.name), rule.params, host);
    UpdateCase scaled({GANNET_FLOAT32, GANNET_FLOAT32, GANNET_BFLOAT16}, 100, rule.states);
    UpdateCase plain = scaled;
    for (uint64_t i = 0; i < plain.numel; ++i) scaled.grad.set(i, plain.grad.get(i) * 1024);
    scaled.grad_scale = 1.0 / 1024;
    scaled.update(optimizer, 2);
    plain.update(optimizer, 2);
    EXPECT_TRUE(scaled.same_result(plain));
  }
}

}  // namespace
}  // namespace gannet::test
