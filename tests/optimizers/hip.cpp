// The optimizers' rules as device code of HIP, by a clang that has no HIP installed: what its headers would define is here. The
// test is that it compiles, to code that calls nothing.
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __forceinline__ inline __attribute__((always_inline))

#include "optimizers/adam/step.h"
#include "optimizers/common/arithmetic.h"
#include "optimizers/sgd/step.h"

namespace gannet::optimizers {
namespace {

#include "optimizers/adam/rule.h"
#include "optimizers/sgd/rule.h"

}  // namespace

template <class T, template <class> class Rule>
__device__ void update(Rule<T> rule, T* p) {
  rule(ScalarMath<T>(), p[3], p[0], p[1], p[2]);
}

__global__ void adam32(AdamRule<float> rule, float* p) { update(rule, p); }
__global__ void adam64(AdamRule<double> rule, double* p) { update(rule, p); }
__global__ void torch_adam32(TorchAdamRule<float> rule, float* p) { update(rule, p); }
__global__ void sgd32(SgdRule<float> rule, float* p) { rule(ScalarMath<float>(), p[1], p[0]); }
__global__ void momentum32(MomentumRule<float, true> rule, float* p) { rule(ScalarMath<float>(), p[2], p[0], p[1]); }

}  // namespace gannet::optimizers
