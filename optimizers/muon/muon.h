// The configuration of Muon: the parameters of DeepSpeed's "Muon" (MuonWithAuxAdam), and
// `adam_for`.
//
// One object serves a parameter group and decides for each tensor: Muon for matrices, Adam for
// vectors and for tensors that match `adam_for`. DeepSpeed splits them into two groups. Here both
// share the learning rate `lr` for schedules, so a schedule that halves `lr` halves both rates:
//
//   Muon:  muon_lr if given, else lr                          times  lr of the step / lr of the config
//   Adam:  adam_lr if given, else lr if given, else 3e-4      times  the same
#pragma once

#include <gannet/sdk_rule.hpp>

#include "optimizers/muon/split.h"

namespace gannet::rules {

constexpr double kAdamLr = 3e-4;  // used if the config gives neither lr nor adam_lr

class MuonConfig {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::at_least(sdk::learning_rate("0.02"), 0),
      sdk::role<GANNET_ROLE_MOMENTUM>(
          sdk::at_most(sdk::at_least(sdk::dynamic_number("momentum", "0.95", "decay rate of Muon's momentum"), 0), 1)),
      sdk::role<GANNET_ROLE_WEIGHT_DECAY>(
          sdk::at_least(sdk::dynamic_number("weight_decay", "0.0", "decoupled weight decay, of both parts"), 0)),
      sdk::role<GANNET_ROLE_BETA1, GANNET_ROLE_BETA2>(
          sdk::below(sdk::at_least(sdk::dynamic_numbers("betas", 2, "[0.9, 0.95]", "decay rates of Adam's moments"), 0), 1)),
      sdk::at_least(sdk::number("eps", "1e-10", "Adam's: added to the root of the second moment"), 0),
      sdk::at_least(
          sdk::number("muon_lr", nullptr, "Muon's learning rate in place of lr; schedules scale it as lr", GANNET_PARAM_NULLABLE),
          0),
      sdk::at_least(
          sdk::number("adam_lr", nullptr, "Adam's learning rate; without it lr, and 3e-4 without both; schedules scale it as lr",
                      GANNET_PARAM_NULLABLE),
          0),
      sdk::text("ns_method", "\"gram\"", "gram|standard", "Newton-Schulz on the smaller Gram matrix, or on the matrix itself"),
      sdk::at_least(sdk::integer("ns_steps", "5", "steps of the Newton-Schulz iteration"), 1),
      sdk::boolean("nesterov", "true", "Nesterov's momentum"),
      sdk::text("adam_for", "\"*embed*|*lm_head*|*wte*|*wpe*\"", nullptr,
                "names of matrices that Adam trains, patterns with * and ? separated by |"),
      sdk::number("max_grad_norm", nullptr, "refused: gradient_clipping does this", GANNET_PARAM_NULLABLE),
  };

  explicit MuonConfig(const sdk::Params& params)
      : eps(params.number("eps")),
        ns_steps(static_cast<uint64_t>(params.integer("ns_steps"))),
        gram(params.text("ns_method") == "gram"),
        nesterov(params.boolean("nesterov")),
        adam_for(params.text("adam_for")) {
    if (params.has("max_grad_norm"))
      throw sdk::Failure(
          GANNET_INVALID_ARGUMENT,
          "'max_grad_norm' is not a parameter of the optimizer: set 'gradient_clipping' at the top level of the config");
    const double lr = params.number("lr");
    if (lr == 0 && (params.has("muon_lr") || params.has("adam_lr")))
      throw sdk::Failure(GANNET_INVALID_ARGUMENT,
                         "'lr' is 0, but 'muon_lr' and 'adam_lr' follow its schedule in proportion: give an 'lr' above 0");
    if (params.has("muon_lr")) muon_per_lr = params.number("muon_lr") / lr;
    if (params.has("adam_lr"))
      adam_per_lr = params.number("adam_lr") / lr;
    else if (!params.given("lr"))
      adam_per_lr = kAdamLr / lr;
  }

  bool is_adam(const gannet_tensor& tensor) const { return tensor.dimensions < 2 || matches_any(adam_for, tensor.name); }

  double eps;
  uint64_t ns_steps;
  bool gram, nesterov;
  std::string adam_for;
  double muon_per_lr = 1, adam_per_lr = 1;  // each optimizer's learning rate divided by lr
};

}  // namespace gannet::rules
