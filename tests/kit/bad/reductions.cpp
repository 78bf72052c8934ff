// Rules that average gradients themselves, and one that does it well.
#include <cmath>
#include <cstring>
#include <gannet/sdk.hpp>

namespace {

using namespace gannet::sdk;

constexpr uint64_t kWarmUp = 3;

// From the fourth update on each rank sends its gradient in steps of 1/8, and keeps the rest for the next time.
struct Averages : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {at_least(learning_rate("0.01"), 0)};
  using OptimizerBase::OptimizerBase;

  uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION; }
  std::vector<gannet_state_spec> states() const {
    gannet_state_spec error = state("error");
    error.flags = GANNET_STATE_OF_RANK;
    return {state("momentum"), error};
  }
  uint32_t reduces_gradients(uint64_t step) const { return step > kWarmUp ? GANNET_REDUCED_BY_UPDATE : GANNET_REDUCED_BY_HOST; }
  void update(const gannet_update_args& a) { step_by(a, mean_of(a, static_cast<float*>(a.states[1]))); }

 protected:
  std::vector<float> gradient_of(const gannet_update_args& a) const {
    std::vector<float> gradient(a.numel);
    for (uint64_t i = 0; i < a.numel; ++i) gradient[i] = static_cast<float>(static_cast<const float*>(a.grad)[i] * a.grad_scale);
    return gradient;
  }
  std::vector<float> mean_of(const gannet_update_args& a, float* error) const {
    std::vector<float> gradient = gradient_of(a);
    if (a.step <= kWarmUp) return gradient;
    for (uint64_t i = 0; i < a.numel; ++i) {
      const float whole = gradient[i] + error[i];
      gradient[i] = std::isfinite(whole) ? std::nearbyint(whole * 8) / 8 : whole;
      error[i] = whole - gradient[i];
    }
    gannet_host_collective average{};
    average.operation = GANNET_HOST_ALL_REDUCE;
    average.dtype = GANNET_FLOAT32;
    average.reduce_op = GANNET_AVERAGE;
    average.send = average.recv = gradient.data();
    average.count = a.numel;
    collective(average);
    return gradient;
  }
  static void step_by(const gannet_update_args& a, const std::vector<float>& gradient) {
    auto* const momentum = static_cast<float*>(a.states[0]);
    for (uint64_t i = 0; i < a.numel; ++i) {
      momentum[i] = 0.9f * momentum[i] + gradient[i];
      static_cast<float*>(a.param)[i] -= static_cast<float>(a.hyper[0]) * momentum[i];
    }
  }
};

struct KeepsLocal : Averages {  // its own gradient, as if it were everyone's
  using Averages::Averages;
  void update(const gannet_update_args& a) { step_by(a, gradient_of(a)); }
};
struct ForgetsError : Averages {  // what was not sent is in no checkpoint
  using Averages::Averages;
  void update(const gannet_update_args& a) {
    auto* const seen = static_cast<float*>(a.states[1]);
    if (a.step <= kWarmUp + 1 || !has_begun_) std::memset(seen, 0, a.numel * sizeof(float));
    step_by(a, mean_of(a, seen));
  }
  void end_step(const gannet_step_args&) { has_begun_ = true; }
  bool has_begun_ = false;
};
struct FicklePlan : Averages {  // whom it is asked by, and how often
  using Averages::Averages;
  uint32_t reduces_gradients(uint64_t step) const { return step > kWarmUp && ++asked_ % 5 != 0; }
  mutable uint64_t asked_ = 0;
};

// Local steps: from the fourth update on each rank takes its own, and every fourth averages parameters and momenta.
struct LocalSteps : Averages {
  using Averages::Averages;
  static bool averages(uint64_t step) { return step % 4 == 0; }
  std::vector<gannet_state_spec> states() const {
    gannet_state_spec momentum = state("momentum");
    momentum.flags = GANNET_STATE_LOCAL;
    return {momentum, state("common")};
  }
  uint32_t reduces_gradients(uint64_t step) const {
    return step <= kWarmUp ? GANNET_REDUCED_BY_HOST : averages(step) ? GANNET_REDUCED_BY_UPDATE : GANNET_REDUCED_LATER;
  }
  void update(const gannet_update_args& a) {
    auto* const param = static_cast<float*>(a.param);
    step_by(a, gradient_of(a));
    if (a.step > kWarmUp && averages(a.step)) {
      average(a, param);
      average(a, static_cast<float*>(a.states[0]));
    }
    if (a.step <= kWarmUp || averages(a.step)) std::memcpy(a.states[1], param, a.numel * sizeof(float));
  }
  void evaluate(const gannet_update_args& a) { std::memcpy(a.out, a.states[1], a.numel * sizeof(float)); }

 protected:
  void average(const gannet_update_args& a, float* values) const {
    gannet_host_collective args{};
    args.operation = GANNET_HOST_ALL_REDUCE;
    args.dtype = GANNET_FLOAT32;
    args.reduce_op = GANNET_AVERAGE;
    args.send = args.recv = values;
    args.count = a.numel;
    collective(args);
  }
};

struct DriftsApart : LocalSteps {  // momenta are averaged, parameters never
  using LocalSteps::LocalSteps;
  void update(const gannet_update_args& a) {
    step_by(a, gradient_of(a));
    if (a.step > kWarmUp && averages(a.step)) average(a, static_cast<float*>(a.states[0]));
    if (a.step <= kWarmUp || averages(a.step)) std::memcpy(a.states[1], a.param, a.numel * sizeof(float));
  }
};
struct GivesItsOwn : LocalSteps {  // as the weights to use
  using LocalSteps::LocalSteps;
  void evaluate(const gannet_update_args& a) { std::memcpy(a.out, a.param, a.numel * sizeof(float)); }
};
struct LocalThenHost : LocalSteps {  // averages gradients of parameters that differ
  using LocalSteps::LocalSteps;
  uint32_t reduces_gradients(uint64_t step) const { return averages(step) ? GANNET_REDUCED_BY_HOST : GANNET_REDUCED_LATER; }
};

#define RULE(type) optimizer<type>(#type, "", "1.0", "averages gradients itself")

}  // namespace

GANNET_PLUGINS(
    "optimizer/averages optimizer/keepslocal optimizer/forgetserror optimizer/fickleplan optimizer/localsteps "
    "optimizer/driftsapart optimizer/givesitsown optimizer/localthenhost",
    GANNET_TIER_STABLE, RULE(Averages), RULE(KeepsLocal), RULE(ForgetsError), RULE(FicklePlan), RULE(LocalSteps),
    RULE(DriftsApart), RULE(GivesItsOwn), RULE(LocalThenHost))
