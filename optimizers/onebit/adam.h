// DeepSpeed's OneBitAdam: Adam without bias correction for freeze_step updates. After these, each
// rank sends its momentum as signs, and carries the compression error over to the next step.
#pragma once

#include "optimizers/onebit/adam_kernel.h"
#include "optimizers/onebit/base.h"

namespace gannet::rules {

class OneBitAdam : public OneBitBase {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::at_least(sdk::learning_rate("1e-3"), 0),
      sdk::betas("[0.9, 0.999]"),
      sdk::at_least(sdk::weight_decay("0.0", "decoupled weight decay"), 0),
      sdk::eps("1e-8"),
      freeze_step_param(),
      cuda_aware_param(),
      comm_backend_name_param(),
      sdk::boolean("bias_correction", "true", "no effect, as in DeepSpeed: the rule has none"),
      sdk::boolean("eps_inside_sqrt", "false", "no effect, as in DeepSpeed"),
      sdk::boolean("amsgrad", "false", "not available"),
      sdk::max_grad_norm(),
  };
  using OneBitBase::OneBitBase;

  std::vector<gannet_state_spec> states() const {
    return {sdk::state("exp_avg"), sdk::state("exp_avg_sq"), error_state("worker_error", GANNET_STATE_OF_RANK),
            error_state("server_error", GANNET_STATE_SERVED)};
  }

  void update(const gannet_update_args& args) {
    const OneBitStep step = step_of(args);
    auto* const exp_avg = static_cast<float*>(args.states[0]);
    const bool is_compressed = this->is_compressed(args.step);
    if (is_compressed)
      compressor_.average(args, step.beta1, exp_avg, static_cast<float*>(args.states[2]), static_cast<float*>(args.states[3]),
                          exp_avg);
    const auto run = is_compressed              ? onebit_adam_averaged_cpu
                     : args.step > freeze_step_ ? onebit_adam_frozen_cpu
                                                : onebit_adam_warm_up_cpu;
    parallel_for(args.numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) { run(step, args, begin, end); });
  }
};

}  // namespace gannet::rules
