// Sophia-G (Liu et al. 2023, algorithms 2 and 3) with the parameters and semantics of the authors'
// SophiaG. The diagonal of the Hessian is estimated from the gradient of a second loss, for which
// the program samples labels from the model's output.
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

// Computes h <- b2 h + (1-b2) s^2, with h passed as the parameter and the second gradient s as the
// gradient.
template <class T>
struct SophiaHessianRule {
  T beta2, one_minus_beta2;
  explicit SophiaHessianRule(const Step& s)
      : beta2(static_cast<T>(s("betas", 1))), one_minus_beta2(static_cast<T>(1 - s("betas", 1))) {}
  template <class V>
  GANNET_DEVICE void operator()(V second, V& hessian) const {
    hessian = fma(one_minus_beta2 * second, second, beta2 * hessian);
  }
};

//   m <- b1 m + (1-b1) g;  p <- (1 - lr decay) p;  p <- p - lr sign(m) min(1, |m| / (rho bs h + 1e-15))
template <class T>
struct SophiaRule {
  static constexpr const char* kStates[] = {"exp_avg", "hessian"};
  T beta1, one_minus_beta1, shrink, minus_lr, of_hessian;
  explicit SophiaRule(const Step& s)
      : beta1(static_cast<T>(s("betas", 0))),
        one_minus_beta1(static_cast<T>(1 - s("betas", 0))),
        shrink(static_cast<T>(1 - s("lr") * s("weight_decay"))),
        minus_lr(static_cast<T>(-s("lr"))),
        of_hessian(static_cast<T>(s("rho") * s("bs"))) {}
  template <class V>
  GANNET_DEVICE void operator()(V g, V& param, V& exp_avg, V& hessian) const {
    exp_avg = fma(V(one_minus_beta1), g, beta1 * exp_avg);
    const V ratio = min(abs(exp_avg) / fma(V(of_hessian), hessian, V(T(1e-15))), V(T(1)));
    param = fma(V(minus_lr), sign(exp_avg) * ratio, shrink * param);
  }
};

struct SophiaUpdate {
  static constexpr gannet_param_spec kParams[] = {
      at_least(learning_rate("1e-4"), 0),
      betas("[0.965, 0.99]"),
      at_least(weight_decay("0.1", "weight decay, apart from the gradient"), 0),
      above(dynamic_number("rho", "0.04", "a larger one clips fewer elements"), 0),
      at_least(integer("bs", "5120", "labels that the second loss is the mean of, over all ranks and micro-batches"), 1),
      at_least(integer("hessian_interval", "10", "steps from one second gradient to the next"), 1),
      max_grad_norm(),
  };
  static void check(const RuleParams& params, const HostServices&) { refuse_max_grad_norm(params); }
  static std::vector<gannet_state_spec> states(const RuleParams&) { return sdk::detail::states_of_rule<SophiaRule<float>>(); }
  template <class T, class Run>
  static void with_rule(const Step& s, Run&& run) {
    run(SophiaRule<T>(s));
  }
};

struct SophiaHessian : SophiaUpdate {
  template <class T, class Run>
  static void with_rule(const Step& s, Run&& run) {
    run(SophiaHessianRule<T>(s));
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE_FAMILY(SophiaUpdate)
GANNET_ELEMENTWISE_FAMILY(SophiaHessian)

#if GANNET_RULE_IS_LAST
namespace gannet::rules {

class Sophia : public SophiaUpdateOptimizer {
 public:
  using SophiaUpdateOptimizer::SophiaUpdateOptimizer;
  uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_SECOND_GRADIENT; }
  bool wants_second_gradient(uint64_t step) const {
    return (step - 1) % static_cast<uint64_t>(params().number("hessian_interval")) == 0;
  }
  void update(const gannet_update_args& args) {
    if (args.second_grad != nullptr) {
      gannet_update_args estimate = args;
      estimate.param = args.states[kHessian];
      estimate.grad = args.second_grad;
      estimate.grad_dtype = args.param_dtype;
      estimate.grad_scale = 1;
      estimate.out = nullptr;
      estimate.out_dtype = GANNET_DTYPE_NONE;
      SophiaHessianKernel::update(*this, sdk::Step(params(), estimate), estimate);
    }
    SophiaUpdateOptimizer::update(args);
  }

 private:
  static constexpr size_t kHessian = 1;
};

}  // namespace gannet::rules

GANNET_ELEMENTWISE_PLUGINS("optimizer/sophia@" GANNET_RULE_DEVICE,
                           gannet::sdk::optimizer<gannet::rules::Sophia>(
                               "Sophia", GANNET_RULE_DEVICE, "1.0.0",
                               "Sophia-G: clipped by the Hessian's diagonal, which a second gradient estimates"))
#endif
