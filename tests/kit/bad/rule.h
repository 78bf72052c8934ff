// A sound rule, momentum, of which each plugin in this folder breaks one thing. kit_test.py has the check that must name it.
#pragma once

#include <gannet/sdk.hpp>

namespace bad {

using namespace gannet::sdk;

struct Momentum : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {at_least(learning_rate("0.01"), 0)};
  using OptimizerBase::OptimizerBase;

  std::vector<gannet_state_spec> states() const { return {state("momentum")}; }
  static float* param(const gannet_update_args& a) { return static_cast<float*>(a.param); }
  static float* grad(const gannet_update_args& a) { return static_cast<float*>(const_cast<void*>(a.grad)); }
  static float* momentum(const gannet_update_args& a) { return static_cast<float*>(a.states[0]); }
  void element(const gannet_update_args& a, uint64_t i, double rate) {
    momentum(a)[i] = 0.9f * momentum(a)[i] + static_cast<float>(grad(a)[i] * a.grad_scale);
    param(a)[i] -= static_cast<float>(rate) * momentum(a)[i];
  }
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i) element(a, i, a.hyper[0]);
  }
};

}  // namespace bad
