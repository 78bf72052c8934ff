// DeepSpeed's ZeroOneAdam (Lu et al. 2022, 0/1 Adam). Adam without bias correction,
// p <- p - lr (m / (sqrt(v) + eps) + decay p), with gradients averaged
//
//   in steps that update v          by the host, in full: m and v are updated
//   in other steps up to the freeze as signs: m is updated with the result C(g), v is not
//   after the freeze                not at all. Every rank takes local steps with its own gradient.
//                                   Then each rank's displacement from the last common parameters,
//                                   times the denominator, is averaged as signs:
//
//     c = C((p - p_common) (sqrt(v) + eps));   p <- p_common + c / (sqrt(v) + eps);   m <- -c / sum of the learning rates
//
// zero_one_plan.h decides the kind of each step. DeepSpeed accumulates the updates separately from
// the parameters; here they are p - p_common, which uses the same memory and keeps the common
// parameters bitwise equal on all ranks.
//
// An element with v = 0 does not move, except for decay, as in rule.h.
#pragma once

#include <algorithm>
#include <cstring>

#include "optimizers/onebit/adam_kernel.h"
#include "optimizers/onebit/base.h"
#include "optimizers/onebit/zero_one_kernel.h"
#include "optimizers/onebit/zero_one_plan.h"

namespace gannet::rules {

class ZeroOneAdam : public OneBitBase {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::at_least(sdk::learning_rate("1e-3"), 0),
      sdk::betas("[0.9, 0.999]"),
      sdk::at_least(sdk::weight_decay("0.0", "decoupled weight decay"), 0),
      sdk::eps("1e-8"),
      sdk::at_least(sdk::integer("var_freeze_step", "100000", "updates after which the variance stays, and steps are local"), 1),
      sdk::at_least(sdk::integer("var_update_scaler", "16", "updates of the variance after which their interval doubles"), 1),
      sdk::at_least(sdk::integer("local_step_scaler", "32678", "local steps after which the interval of averages doubles"), 1),
      sdk::at_least(sdk::integer("local_step_clipper", "16", "largest interval of averages, in steps"), 1),
      cuda_aware_param(),
      comm_backend_name_param(),
      sdk::boolean("bias_correction", "true", "no effect, as in DeepSpeed: the rule has none"),
      sdk::boolean("eps_inside_sqrt", "false", "no effect, as in DeepSpeed"),
      sdk::boolean("amsgrad", "false", "not available"),
      sdk::max_grad_norm(),
  };

  ZeroOneAdam(const gannet_host& host, const sdk::Params& params)
      : OneBitBase(host, params, "var_freeze_step"),
        plan_{freeze_step_, static_cast<uint64_t>(params.integer("var_update_scaler")),
              static_cast<uint64_t>(params.integer("local_step_scaler")),
              static_cast<uint64_t>(params.integer("local_step_clipper"))} {}

  std::vector<gannet_state_spec> states() const {
    return {error_state("exp_avg", GANNET_STATE_LOCAL),
            sdk::state("exp_avg_sq"),
            sdk::state("common_param"),
            error_state("worker_error", GANNET_STATE_OF_RANK),
            error_state("server_error", GANNET_STATE_SERVED),
            sdk::state("lr_sum", GANNET_STATE_SCALAR, GANNET_FLOAT64, kNone)};
  }
  uint32_t reduces_gradients(uint64_t step) const {
    if (plan_.updates_variance(step)) return GANNET_REDUCED_BY_HOST;
    return plan_.is_local(step) && !plan_.averages_updates(step) ? GANNET_REDUCED_LATER : GANNET_REDUCED_BY_UPDATE;
  }

  // lr_sum tracks the current run of local steps, independently of the plan of an earlier part of
  // the training: it is kNone before the local phase, 0 after an average, and otherwise the sum of
  // the learning rates since then.
  void begin_step(const gannet_step_args& args) {
    double& sum = *static_cast<double*>(args.states[kLrSum]);
    step_ = args.step;
    begins_phase_ = plan_.is_local(step_) && sum < 0;
    begins_run_ = plan_.is_local(step_) && sum <= 0;
    sum = plan_.is_local(step_) ? std::max(sum, 0.0) + args.hyper[0] : kNone;
  }
  void end_step(const gannet_step_args& args) {
    if (plan_.averages_updates(step_)) *static_cast<double*>(args.states[kLrSum]) = 0;
  }

  void update(const gannet_update_args& args) {
    if (begins_phase_) {  // the errors of compressed gradients must not be added to updates
      std::fill_n(state(args, kWorkerError), args.numel, 0.0f);
      std::fill_n(state(args, kServerError), args.numel / world_size(), 0.0f);
    }
    if (begins_run_) copy(args, static_cast<const float*>(args.param), state(args, kCommon));
    if (plan_.updates_variance(step_)) return run(onebit_adam_warm_up_cpu, args);
    if (!plan_.is_local(step_)) return run(onebit_adam_frozen_cpu, with_average(args));
    run(onebit_adam_frozen_cpu, args);
    if (plan_.averages_updates(step_)) average_updates(args);
  }

  // Copies the parameters to `out`, or the common parameters during a run of local steps.
  void evaluate(const gannet_update_args& args) {
    const bool is_under_way = *static_cast<const double*>(args.states[kLrSum]) > 0;
    copy(args, is_under_way ? state(args, kCommon) : static_cast<const float*>(args.param), static_cast<float*>(args.out));
  }

 private:
  enum State : size_t { kExpAvg, kExpAvgSq, kCommon, kWorkerError, kServerError, kLrSum };
  static constexpr double kNone = -1;
  static float* state(const gannet_update_args& args, State which) { return static_cast<float*>(args.states[which]); }

  template <class Kernel>
  void run(Kernel kernel, const gannet_update_args& args) {
    const OneBitStep step = step_of(args);
    parallel_for(args.numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) { kernel(step, args, begin, end); });
  }
  void copy(const gannet_update_args& args, const float* from, float* to) {
    parallel_for(args.numel, sdk::kGrain,
                 [&](uint64_t begin, uint64_t end) { std::memcpy(to + begin, from + begin, (end - begin) * sizeof(float)); });
  }

  // Returns the same arguments with the average over the ranks in place of the gradient.
  gannet_update_args with_average(const gannet_update_args& args) {
    gannet_update_args averaged = args;
    if (world_size() == 1) return averaged;
    averaged_.resize(args.numel);
    compressor_.average(args, /*beta=*/0, state(args, kExpAvg), state(args, kWorkerError), state(args, kServerError),
                        averaged_.data());
    averaged.grad = averaged_.data();
    averaged.grad_dtype = GANNET_FLOAT32;
    averaged.grad_scale = 1;
    return averaged;
  }

  // Averages the updates. If all learning rates since the last average are 0, no parameter has
  // moved, so nothing is sent and the momentum restarts at 0.
  void average_updates(const gannet_update_args& args) {
    const double sum = *static_cast<const double*>(args.states[kLrSum]);
    const double minus_inverse = sum > 0 ? -1 / sum : 0;
    if (world_size() == 1 || sum <= 0)
      return parallel_for(args.numel, sdk::kGrain,
                          [&](uint64_t begin, uint64_t end) { zero_one_alone_cpu({eps_, minus_inverse}, args, begin, end); });
    parallel_for(args.numel, sdk::kGrain,
                 [&](uint64_t begin, uint64_t end) { zero_one_collect_cpu({eps_, minus_inverse}, args, begin, end); });
    float* const sent = state(args, kExpAvg);
    compressor_.average(args, /*beta=*/1, sent, state(args, kWorkerError), state(args, kServerError), sent);
    parallel_for(args.numel, sdk::kGrain,
                 [&](uint64_t begin, uint64_t end) { zero_one_apply_cpu({eps_, minus_inverse}, args, begin, end); });
  }

  const ZeroOnePlan plan_;
  uint64_t step_ = 1;  // the group's current step
  bool begins_phase_ = false, begins_run_ = false;
  std::vector<float> averaged_;  // the averaged gradient of the last piece
};

}  // namespace gannet::rules
