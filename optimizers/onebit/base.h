// The shared base of the 1-bit optimizers: DeepSpeed's communication parameters, the moments, the
// errors of the two compressions, and the start of the compressed phase.
#pragma once

#include <gannet/sdk_rule.hpp>
#include <string>

#include "optimizers/onebit/compressor.h"
#include "optimizers/onebit/step.h"

namespace gannet::rules {

constexpr gannet_param_spec freeze_step_param() {
  return sdk::at_least(
      sdk::integer("freeze_step", "100000", "updates of the warm-up; after them variances stay, and momenta are sent as signs"),
      1);
}
constexpr gannet_param_spec cuda_aware_param() {
  return sdk::boolean("cuda_aware", "false", "no effect: the Comm that the config names moves the memory that it can");
}
constexpr gannet_param_spec comm_backend_name_param() {
  return sdk::text("comm_backend_name", "\"nccl\"", "nccl|mpi|hccl|compressed",
                   "no effect: signs are sent by the Comm that the config names");
}

class OneBitBase : public sdk::OptimizerBase {
 public:
  // `freeze_step` is the name of the parameter that gives the number of variance updates.
  OneBitBase(const gannet_host& host, const sdk::Params& params, const char* freeze_step = "freeze_step")
      : OptimizerBase(host, params),
        freeze_step_(static_cast<uint64_t>(params.integer(freeze_step))),
        eps_(params.number("eps")) {
    if (params.boolean("amsgrad"))
      throw sdk::Failure(GANNET_UNSUPPORTED, "'amsgrad' is true, but the 1-bit optimizers have no AMSGrad variant: remove it");
    if (params.has("max_grad_norm"))
      throw sdk::Failure(
          GANNET_INVALID_ARGUMENT,
          "'max_grad_norm' is not a parameter of the optimizer: set 'gradient_clipping' at the top level of the config");
    for (const char* name : {"bias_correction", "eps_inside_sqrt"}) say_no_effect(params, name, "the rule has none");
    for (const char* name : {"cuda_aware", "comm_backend_name"})
      say_no_effect(params, name, "the config's comm block names the Comm");
  }

  uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION; }
  // The alignment makes each tensor's signs begin on a byte boundary.
  uint64_t range_alignment() const { return 32; }
  // Only fp32 masters are supported, because compressed values do not benefit from more precision.
  bool supports(uint32_t param, uint32_t grad, uint32_t out) const {
    return param == GANNET_FLOAT32 && sdk::elementwise_supports(param, grad, out);
  }
  uint32_t reduces_gradients(uint64_t step) const {
    return step > freeze_step_ ? GANNET_REDUCED_BY_UPDATE : GANNET_REDUCED_BY_HOST;
  }

 protected:
  void say_no_effect(const sdk::Params& params, const char* name, const char* why) const {
    if (params.given(name) && rank() == 0)
      log(GANNET_LOG_INFO, std::string("the 1-bit optimizers' '") + name + "' has no effect: " + why);
  }
  static gannet_state_spec error_state(const char* name, gannet_state_flag flag) {
    gannet_state_spec spec = sdk::state(name, GANNET_STATE_PER_ELEMENT, GANNET_FLOAT32);
    spec.flags = flag;
    return spec;
  }
  OneBitStep step_of(const gannet_update_args& args) const {
    return {args.hyper[0], args.hyper[1], args.hyper[2], eps_, args.hyper[3]};
  }
  bool is_compressed(uint64_t step) const { return step > freeze_step_ && world_size() > 1; }

  const uint64_t freeze_step_;
  const double eps_;
  Compressor compressor_{*this};
};

}  // namespace gannet::rules
