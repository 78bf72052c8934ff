// Adam and AdamW: the parameters of DeepSpeed's "Adam" and "AdamW". "Adam" trains as AdamW unless "adam_w_mode" is false; "AdamW"
// is always AdamW.
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

// One step's numbers, from doubles, rounded to the master's type. A term that is switched off has the factor 0.

// DeepSpeed's CPU kernel (Kingma & Ba 2015; decay as in Loshchilov & Hutter 2019), in its order of roundings, so that runs on a
// CPU stay within its last bits: the root is corrected rather than the moments, the decay is rounded into the parameter first.
//   m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;  p <- p - lr decay p;  p <- p - lr/bc1 m / (sqrt(v) / sqrt(bc2) + eps)
// Its CUDA kernel does the same algebra in another order, with two products more. Offloading changes no bit here, so there is
// one order for all devices.
template <class T>
struct AdamRule {
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq"};
  T beta1, one_minus_beta1, beta2, one_minus_beta2;
  T inverse_root_bias2;    // 1/sqrt(bc2)
  T eps, minus_step_size;  // -lr/bc1
  T decoupled_decay;       // -lr decay; 0 unless decoupled
  T l2;                    // 0 if decoupled

  AdamRule(const Step& s, double decay, bool decoupled) {
    // The betas as the master's type has them, and all else from those, as in DeepSpeed's kernels: 1 - 0.999 in fp32 is
    // 1.3e-5 off 0.001, and the bias correction must divide by what the moments' weights really add up to.
    beta1 = static_cast<T>(s("betas", 0));
    one_minus_beta1 = 1 - beta1;
    beta2 = static_cast<T>(s("betas", 1));
    one_minus_beta2 = 1 - beta2;
    const bool correct = s.flag("bias_correction");
    inverse_root_bias2 = static_cast<T>(1 / std::sqrt(correct ? s.bias_correction(double{beta2}) : 1));
    eps = static_cast<T>(s("eps"));
    minus_step_size = static_cast<T>(-s("lr") / (correct ? s.bias_correction(double{beta1}) : 1));
    decoupled_decay = decoupled ? -static_cast<T>(s("lr")) * static_cast<T>(decay) : 0;
    l2 = decoupled ? 0 : static_cast<T>(decay);
  }
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& param, V& exp_avg, V& exp_avg_sq) const {
    const V g = fma(V(l2), param, gradient);
    exp_avg = fma(V(one_minus_beta1), g, beta1 * exp_avg);
    exp_avg_sq = fma(V(one_minus_beta2), g * g, beta2 * exp_avg_sq);
    const V denominator = fma(sqrt(exp_avg_sq), V(inverse_root_bias2), V(eps));
    const V decayed = fma(V(decoupled_decay), param, param);
    param = fma(exp_avg / denominator, V(minus_step_size), decayed);
  }
};

// torch.optim's order of roundings, which "torch_adam" asks for: the decay multiplies the parameter first, the first moment
// is a lerp, products are rounded before they are added.
//   p <- p (1 - lr decay);  m <- m + (1-b1)(g - m);  v <- b2 v + ((1-b2) g) g
//   p <- p + (-lr/bc1 m) / (sqrt(v)/sqrt(bc2) + eps)
template <class T>
struct TorchAdamRule {
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq"};
  T one_minus_beta1, beta2, one_minus_beta2;
  T root_bias2;  // sqrt(bc2)
  T eps, minus_step_size;
  T keep;  // 1 - lr * decay if decoupled, else 1
  T l2;

  TorchAdamRule(const Step& s, double decay, bool decoupled) {
    one_minus_beta1 = static_cast<T>(1 - s("betas", 0));
    beta2 = static_cast<T>(s("betas", 1));
    one_minus_beta2 = static_cast<T>(1 - s("betas", 1));
    root_bias2 = static_cast<T>(std::sqrt(s.bias_correction(s("betas", 1))));
    eps = static_cast<T>(s("eps"));
    minus_step_size = static_cast<T>(-s("lr") / s.bias_correction(s("betas", 0)));
    keep = decoupled ? static_cast<T>(1 - s("lr") * decay) : 1;
    l2 = decoupled ? 0 : static_cast<T>(decay);
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
  // The group's weight_decay is the schema's 0, which stands for torch.optim.AdamW's own default.
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
    if (has_default_decay(params)) host.log(GANNET_LOG_INFO, "torch_adam: weight_decay is torch.optim.AdamW's default, 0.01");
  }
  static std::vector<gannet_state_spec> states(const RuleParams&) { return sdk::detail::states_of_rule<AdamRule<float>>(); }

  template <class T, class Run>
  static void with_rule(const Step& s, Run&& run) {
    const bool decoupled = is_decoupled(s.params());
    const double decay = has_default_decay(s.params()) && s("weight_decay") == 0 ? kTorchAdamWDecay : s("weight_decay");
    if (s.flag("torch_adam")) return run(TorchAdamRule<T>(s, decay, decoupled));
    run(AdamRule<T>(s, decay, decoupled));
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
