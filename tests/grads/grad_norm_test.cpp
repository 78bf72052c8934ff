#include "grads/grad_norm.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace gannet {
namespace {

template <class T>
constexpr gannet_dtype kDtype = GANNET_FLOAT32;
template <>
constexpr gannet_dtype kDtype<double> = GANNET_FLOAT64;
template <>
constexpr gannet_dtype kDtype<c10::Half> = GANNET_FLOAT16;
template <>
constexpr gannet_dtype kDtype<c10::BFloat16> = GANNET_BFLOAT16;

template <class T>
double as_double(T value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return static_cast<float>(value);
}

template <class T>
struct GradNorm : testing::Test {
  static std::vector<T> numbers(uint64_t count) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<T> values(count);
    for (auto& value : values) value = T(normal(random));
    return values;
  }
};
using Types = testing::Types<float, double, c10::Half, c10::BFloat16>;
TYPED_TEST_SUITE(GradNorm, Types);

TYPED_TEST(GradNorm, IsTheSumOfSquares) {
  for (uint64_t count : {0, 1, 31, 32, 33, 65535, 65536, 65537, 200'000}) {
    const auto values = this->numbers(count);
    long double expected = 0;
    for (auto value : values) expected += static_cast<long double>(as_double(value)) * as_double(value);
    const NormResult result = sum_of_squares(values.data(), kDtype<TypeParam>, count, 0);
    EXPECT_TRUE(result.finite);
    // A sum of n positive terms is off by at most n roundings; by lanes and blocks far fewer in a row.
    EXPECT_NEAR(result.sum_of_squares, static_cast<double>(expected), static_cast<double>(expected) * 4096 * 0x1p-53);
  }
}

TYPED_TEST(GradNorm, DoesNotDependOnThreadsNorOnCutsAtBlocks) {
  const uint64_t count = 7 * kNormBlock + 123;
  const auto values = this->numbers(count);
  const double whole = sum_of_squares(values.data(), kDtype<TypeParam>, count, 0).sum_of_squares;
  const int threads = at::get_num_threads();
  for (int n : {1, 2, 3, 5}) {
    at::set_num_threads(n);
    EXPECT_EQ(sum_of_squares(values.data(), kDtype<TypeParam>, count, 0).sum_of_squares, whole);
  }
  at::set_num_threads(threads);
  for (uint64_t cut = 0; cut < count; cut += kNormBlock) {
    const NormResult first = sum_of_squares(values.data(), kDtype<TypeParam>, cut, 0);
    EXPECT_EQ(sum_of_squares(values.data() + cut, kDtype<TypeParam>, count - cut, cut, first).sum_of_squares, whole);
  }
}

// A piece that begins within a block ends that block where the whole buffer does.
TYPED_TEST(GradNorm, CountsBlocksFromTheStartOfTheWholeBuffer) {
  const uint64_t begin = 1000, end = 3 * kNormBlock;
  const auto values = this->numbers(end);
  auto from = [&](uint64_t first, uint64_t last, NormResult so_far) {
    return sum_of_squares(values.data() + first, kDtype<TypeParam>, last - first, first, so_far);
  };
  const NormResult in_two = from(kNormBlock, end, from(begin, kNormBlock, {}));
  EXPECT_EQ(from(begin, end, {}).sum_of_squares, in_two.sum_of_squares);
}

TYPED_TEST(GradNorm, DoesNotDependOnTheWidthOfTheSimd) {
  const uint64_t count = kNormBlock + 1001;
  const auto values = this->numbers(count);
  const double widest = sum_of_squares(values.data(), kDtype<TypeParam>, count, 0).sum_of_squares;
  for (int64_t target : {int64_t{0}, int64_t{HWY_SSE4}, int64_t{HWY_AVX2}}) {
    if ((hwy::SupportedTargets() & target) != target) continue;
    hwy::GetChosenTarget().Update(target);
    const double narrower = sum_of_squares(values.data(), kDtype<TypeParam>, count, 0).sum_of_squares;
    if (std::is_same_v<TypeParam, double>) {
      EXPECT_NEAR(narrower, widest, widest * 1e-14);  // squares of fp64 round, unless the CPU fuses
    } else {
      EXPECT_EQ(narrower, widest) << target;
    }
    hwy::GetChosenTarget().DeInit();
  }
}

TYPED_TEST(GradNorm, TellsAnInfiniteOrNaNElementWhereverItIs) {
  const uint64_t count = 2 * kNormBlock + 45;
  for (int64_t target : {int64_t{0}, int64_t{hwy::SupportedTargets()}}) {
    hwy::GetChosenTarget().Update(target);
    for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
      for (uint64_t place : {uint64_t{0}, uint64_t{1}, kNormBlock - 1, kNormBlock, 2 * kNormBlock + 31, count - 1}) {
        auto values = this->numbers(count);
        values[place] = TypeParam(bad);
        const NormResult result = sum_of_squares(values.data(), kDtype<TypeParam>, count, 0);
        EXPECT_FALSE(result.finite);
        EXPECT_TRUE(std::isnan(result.sum_of_squares));
        EXPECT_EQ(first_non_finite(values.data(), kDtype<TypeParam>, count), place);
      }
    }
    hwy::GetChosenTarget().DeInit();
  }
  const auto values = this->numbers(count);
  EXPECT_EQ(first_non_finite(values.data(), kDtype<TypeParam>, count), std::nullopt);
}

TYPED_TEST(GradNorm, TheLargestAndTheSmallestNumbersAreFinite) {
  const TypeParam large = std::numeric_limits<TypeParam>::max(), tiny = std::numeric_limits<TypeParam>::denorm_min();
  for (int64_t target : {int64_t{0}, int64_t{hwy::SupportedTargets()}}) {
    hwy::GetChosenTarget().Update(target);
    const std::vector<TypeParam> values(100, large), small(100, tiny);
    EXPECT_TRUE(sum_of_squares(values.data(), kDtype<TypeParam>, 100, 0).finite);
    const NormResult result = sum_of_squares(small.data(), kDtype<TypeParam>, 100, 0);
    EXPECT_TRUE(result.finite);
    EXPECT_DOUBLE_EQ(result.sum_of_squares, 100 * as_double(tiny) * as_double(tiny));
    hwy::GetChosenTarget().DeInit();
  }
}

TYPED_TEST(GradNorm, OnceNotFiniteStaysSo) {
  const auto values = this->numbers(10);
  const NormResult result =
      sum_of_squares(values.data(), kDtype<TypeParam>, 10, kNormBlock, {.sum_of_squares = 1, .finite = false});
  EXPECT_FALSE(result.finite);
  EXPECT_TRUE(std::isnan(result.sum_of_squares));
}

}  // namespace
}  // namespace gannet
