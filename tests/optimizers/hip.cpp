// The optimizers' rules as device code of HIP, by a clang that has no HIP installed: what its headers would define is here. The
// test is that it compiles, to code that calls nothing.
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __forceinline__ inline __attribute__((always_inline))

// Each begins with the SDK's header, which has no include guard.
#include "optimizers/adagrad/adagrad.cpp"
#include "optimizers/adam/adam.cpp"
#include "optimizers/lion/lion.cpp"
#include "optimizers/nadam/nadam.cpp"
#include "optimizers/rmsprop/rmsprop.cpp"
#include "optimizers/sgd/sgd.cpp"

namespace gannet::rules::hip {

template <class T, class Rule>
__device__ void update0(Rule rule, T* x) {
  Scalar<T> p(x[0]);
  rule(Scalar<T>(x[4]), p);
  x[0] = p.value;
}
template <class T, class Rule>
__device__ void update1(Rule rule, T* x) {
  Scalar<T> p(x[0]), a(x[1]);
  rule(Scalar<T>(x[4]), p, a);
  x[0] = p.value, x[1] = a.value;
}
template <class T, class Rule>
__device__ void update2(Rule rule, T* x) {
  Scalar<T> p(x[0]), a(x[1]), b(x[2]);
  rule(Scalar<T>(x[4]), p, a, b);
  x[0] = p.value, x[1] = a.value, x[2] = b.value;
}

__global__ void adam32(AdamRule<float> rule, float* x) { update2(rule, x); }
__global__ void adam64(AdamRule<double> rule, double* x) { update2(rule, x); }
__global__ void torch_adam32(TorchAdamRule<float> rule, float* x) { update2(rule, x); }
__global__ void sgd32(SgdRule<float> rule, float* x) { update0(rule, x); }
__global__ void momentum32(MomentumRule<float, true> rule, float* x) { update1(rule, x); }
__global__ void lion32(Lion<float> rule, float* x) { update1(rule, x); }
__global__ void adagrad32(Adagrad<float> rule, float* x) { update1(rule, x); }
__global__ void nadam32(NAdam<float> rule, float* x) { update2(rule, x); }
__global__ void rmsprop32(RMSpropCentered<float> rule, float* x) { update2(rule, x); }

}  // namespace gannet::rules::hip
