// Adam and AdamW, with the parameters of DeepSpeed's "Adam" and "AdamW". "Adam" trains as AdamW
// unless "adam_w_mode" is false; "AdamW" is always AdamW.
#include <gannet/sdk_elementwise.hpp>

#include "step.h"

GANNET_RULES_BEGIN

#include "rule.h"

// In both rules, the factor of a disabled term is 0.

// The rule with torch.optim's order of roundings, selected by "torch_adam". The decay multiplies
// the parameter first, the first moment is a lerp, and products are rounded before they are added.
//   p <- p (1 - lr decay);  m <- m + (1-b1)(g - m);  v <- b2 v + ((1-b2) g) g
//   p <- p + (-lr/bc1 m) / (sqrt(v)/sqrt(bc2) + eps)
template <class T>
struct TorchAdamRule {
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq"};
  T one_minus_beta1, beta2, one_minus_beta2;
  T root_bias2;  // sqrt(bc2)
  T eps, minus_step_size;
  T keep;  // 1 - lr * decay if the decay is decoupled, otherwise 1
  T l2;

  explicit TorchAdamRule(const AdamStep& s) {
    const auto bias = [&](double beta) { return 1 - std::pow(beta, static_cast<double>(s.step)); };
    one_minus_beta1 = static_cast<T>(1 - s.beta1);
    beta2 = static_cast<T>(s.beta2);
    one_minus_beta2 = static_cast<T>(1 - s.beta2);
    root_bias2 = static_cast<T>(std::sqrt(bias(s.beta2)));
    eps = static_cast<T>(s.eps);
    minus_step_size = static_cast<T>(-s.lr / bias(s.beta1));
    keep = s.decoupled ? static_cast<T>(1 - s.lr * s.weight_decay) : 1;
    l2 = s.decoupled ? 0 : static_cast<T>(s.weight_decay);
  }
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& param, V& exp_avg, V& exp_avg_sq) const {
    const V g = fma(V(l2), param, gradient);
    param = param * keep;
    exp_avg = fma(V(one_minus_beta1), g - exp_avg, exp_avg);
    exp_avg_sq = beta2 * exp_avg_sq + one_minus_beta2 * g * g;
    const V denominator = sqrt(exp_avg_sq) / root_bias2 + eps;
    param = param + minus_step_size * exp_avg / denominator;
  }
};

template <bool kIsAdamW>
struct AdamFamily {
  static constexpr gannet_param_spec kParams[] = {
      learning_rate("1e-3"),
      betas("[0.9, 0.999]"),
      weight_decay("0.0", "weight decay (with torch_adam and AdamW: 0.01 unless given)"),
      sdk::eps("1e-8"),
      boolean("bias_correction", "true", "divide the moments by 1 - beta^step"),
      boolean("adam_w_mode", "true", "decoupled weight decay; false: L2 regularisation, for type Adam"),
      boolean("torch_adam", "false", "torch.optim's defaults and order of roundings"),
      boolean("amsgrad", "false", "not available"),
      boolean("set_grad_none", "true", "accepted; gradients are always released after a step"),
      boolean("fp32_optimizer_states", "true", "states have the master's type; false is not available"),
      max_grad_norm(),
  };

  static bool is_decoupled(const RuleParams& params) { return kIsAdamW || params.flag("adam_w_mode"); }
  // Whether torch_adam runs as AdamW and weight_decay is unset: torch.optim.AdamW's default replaces the schema's 0.
  static bool has_default_decay(const RuleParams& params) {
    return params.flag("torch_adam") && is_decoupled(params) && !params.given("weight_decay");
  }
  static constexpr double kTorchAdamWDecay = 0.01;

  static void check(const RuleParams& params, const HostServices& host) {
    if (params.flag("amsgrad"))
      throw Failure(GANNET_UNSUPPORTED, "'amsgrad' is true, but this Adam has no AMSGrad variant: remove it");
    if (!params.flag("fp32_optimizer_states"))
      throw Failure(GANNET_UNSUPPORTED,
                    "'fp32_optimizer_states' is false, but the moments are kept in the master's type only: remove it");
    refuse_max_grad_norm(params);
    if (params.flag("torch_adam") && !params.flag("bias_correction"))
      throw Failure(GANNET_INVALID_ARGUMENT,
                    "'bias_correction' is false, but torch's Adam always corrects the bias: remove one of 'bias_correction' and "
                    "'torch_adam'");
    if (kIsAdamW && !params.flag("adam_w_mode"))
      host.warn("type AdamW ignores \"adam_w_mode\": false, as DeepSpeed does; for L2 regularisation use type Adam");
    if (!kIsAdamW && !params.given("adam_w_mode") && params.number("weight_decay") > 0)
      host.log(GANNET_LOG_INFO,
               "type Adam decays as AdamW does, as in DeepSpeed; \"adam_w_mode\": false adds weight_decay to the gradient, as "
               "torch.optim.Adam does");
    if (has_default_decay(params)) host.log(GANNET_LOG_INFO, "torch_adam: weight_decay is torch.optim.AdamW's default, 0.01");
  }
  static std::vector<gannet_state_spec> states(const RuleParams&) { return sdk::detail::states_of_rule<AdamRule<float>>(); }

  template <class T, class Run>
  static void with_rule(const Step& s, Run&& run) {
    AdamStep step{s("lr"),
                  s("betas", 0),
                  s("betas", 1),
                  s("eps"),
                  s("weight_decay"),
                  s.count(),
                  is_decoupled(s.params()),
                  s.flag("bias_correction")};
    if (has_default_decay(s.params()) && step.weight_decay == 0) step.weight_decay = kTorchAdamWDecay;
    if (s.flag("torch_adam")) return run(TorchAdamRule<T>(step));
    run(AdamRule<T>(step));
  }
};
struct Adam : AdamFamily<false> {};
struct AdamW : AdamFamily<true> {};

GANNET_RULES_END

GANNET_ELEMENTWISE_FAMILY(Adam)
GANNET_ELEMENTWISE_FAMILY(AdamW)
GANNET_ELEMENTWISE_PLUGINS("optimizer/adam@" GANNET_RULE_DEVICE " optimizer/adamw@" GANNET_RULE_DEVICE,
                           GANNET_ELEMENTWISE_OPTIMIZER(Adam, "Adam", "1.0.0",
                                                        "Adam; decoupled decay unless adam_w_mode is false"),
                           GANNET_ELEMENTWISE_OPTIMIZER(AdamW, "AdamW", "1.0.0", "Adam with decoupled weight decay"))
