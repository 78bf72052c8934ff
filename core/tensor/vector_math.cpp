#include "tensor/vector_math.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/trunc.h>

#include <mutex>

namespace gannet {

void settle_vector_math() {
  static std::once_flag once;
  std::call_once(once, [] {
    const at::NoGradGuard no_grad;
    // The functions that ATen/cpu/vml.h passes to MKL. They are called in the two dtypes for which
    // it does so.
    constexpr at::Tensor (*kFunctions[])(const at::Tensor&) = {at::acos,   at::asin, at::atan, at::cos,  at::erf, at::erfc,
                                                               at::erfinv, at::exp,  at::log,  at::log2, at::sin, at::log10,
                                                               at::tan,    at::sqrt, at::tanh, at::trunc};
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      const at::Tensor half = at::full({1}, 0.5, at::TensorOptions().dtype(dtype).device(at::kCPU));
      for (const auto function : kFunctions) function(half);
    }
  });
}

}  // namespace gannet
