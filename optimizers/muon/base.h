// Muon, except for the loops and the products, which each device implements: the assignment of
// tensors to Muon or Adam, and the scalars of a step.
#pragma once

#include <string>
#include <vector>

#include "optimizers/adam/step.h"
#include "optimizers/muon/muon.h"
#include "optimizers/muon/step.h"

namespace gannet::rules {

class MuonBase : public sdk::OptimizerBase {
 public:
  static constexpr auto& kParams = MuonConfig::kParams;

  MuonBase(const gannet_host& host, const sdk::Params& params) : OptimizerBase(host, params), config_(params) {}

  void prepare(const gannet_optimizer_context& context) {
    is_adam_.clear();
    bool any_adam = false;
    for (uint64_t t = 0; t < context.tensor_count; ++t) {
      const gannet_tensor& tensor = sdk::element(context.tensors, context.tensor_stride, t);
      is_adam_.push_back(config_.is_adam(tensor));
      if (is_adam_.back() && is_prepared_ && !has_second_moment_)
        throw sdk::Failure(GANNET_UNSUPPORTED,
                           std::string("parameter '") + tensor.name +
                               "' is Adam's, but the group that it joins began with only matrices of Muon and keeps no second "
                               "moment: put it into a group of its own, or in the group from the start");
      any_adam = any_adam || is_adam_.back();
    }
    // Only Adam uses the second moment, but a state covers every element of the group.
    if (!is_prepared_) has_second_moment_ = any_adam || is_adam_.empty();
    is_prepared_ = true;
  }
  uint64_t capabilities() const { return GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR; }
  std::vector<gannet_state_spec> states() const {
    if (!has_second_moment_) return {sdk::state("exp_avg")};
    return {sdk::state("exp_avg"), sdk::state("exp_avg_sq")};
  }
  bool supports(uint32_t param, uint32_t grad, uint32_t out) const { return sdk::elementwise_supports(param, grad, out); }

 protected:
  // DeepSpeed's auxiliary Adam is AdamW with bias correction. The order of roundings here is that
  // of our own AdamW.
  AdamStep adam_step_of(const gannet_update_args& args) const {
    AdamStep step{};
    step.lr = args.hyper[0] * config_.adam_per_lr;
    step.weight_decay = args.hyper[2];
    step.beta1 = args.hyper[3];
    step.beta2 = args.hyper[4];
    step.eps = config_.eps;
    step.step = args.step;
    step.decoupled = step.bias_correction = true;
    return step;
  }
  MuonStep muon_step_of(const gannet_update_args& args, const Matrices& matrices) const {
    return {args.hyper[0] * config_.muon_per_lr, args.hyper[1], args.hyper[2], matrices.scale, config_.nesterov};
  }
  // Whether Adam trains the part. Throws GANNET_INTERNAL if Muon trains it and it is not a whole tensor.
  bool is_adams(const gannet_segment& part) const {
    if (is_adam_.at(part.tensor_index)) return true;
    if (part.numel != part.tensor_numel)
      throw sdk::Failure(GANNET_INTERNAL, std::string("the host gave a part of '") + part.name + "', but Muon needs it whole");
    return false;
  }
  const MuonConfig& config() const { return config_; }

 private:
  MuonConfig config_;
  std::vector<bool> is_adam_;  // one per tensor
  bool is_prepared_ = false, has_second_moment_ = true;
};

}  // namespace gannet::rules
