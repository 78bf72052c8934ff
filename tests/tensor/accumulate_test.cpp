#include "tensor/accumulate.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace gannet {
namespace {

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

at::Tensor numbers(int64_t numel, at::ScalarType dtype, double scale) {
  at::Tensor values = at::arange(numel, at::kDouble).mul(0.7).sin().mul(scale);
  values[0] = std::numeric_limits<double>::infinity();
  if (numel > 2) values[1] = 1e-42, values[2] = -0.0;
  return values.to(dtype);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

TEST(Accumulate, CopiesAndAddsTheBitsThatLibTorchDoes) {
  for (const auto into_dtype : kTypes)
    for (const auto from_dtype : kTypes)
      for (const int64_t numel : {1, 3, 31, 1024, 300'001})
        for (const bool adds : {false, true}) {
          const at::Tensor from = numbers(numel, from_dtype, 1), into = numbers(numel, into_dtype, 100), before = into.clone();
          const at::Tensor wanted = adds ? into.clone().add_(from) : into.clone().copy_(from);
          if (accumulate(into.data_ptr(), into_dtype, from.const_data_ptr(), from_dtype, numel, adds))
            EXPECT_TRUE(same_bits(into, wanted))
                << into_dtype << " from " << from_dtype << ", " << numel << (adds ? " added" : " copied");
          else
            EXPECT_TRUE(same_bits(into, before)) << into_dtype << " from " << from_dtype << ", " << numel;
        }
}

TEST(Accumulate, TakesWhatGradientsAreMadeOf) {
  float wide[4] = {};
  c10::BFloat16 narrow[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  EXPECT_TRUE(accumulate(wide, at::kFloat, narrow, at::kBFloat16, 4, false));
  EXPECT_TRUE(accumulate(wide, at::kFloat, narrow, at::kBFloat16, 4, true));
  EXPECT_EQ(wide[3], 8.0f);
  EXPECT_TRUE(accumulate(narrow, at::kBFloat16, narrow, at::kBFloat16, 4, true));
  EXPECT_FALSE(accumulate(narrow, at::kBFloat16, wide, at::kFloat, 4, false));  // a rounding copy is LibTorch's
}

}  // namespace
}  // namespace gannet
