// Schedule-Free AdamW (Defazio et al. 2024, "The Road Less Scheduled", algorithm 1) with the
// parameters and semantics of AdamWScheduleFree from the authors' package. It needs no learning
// rate schedule. Evaluation uses x, an average of the iterates. Gradients are taken at y, between x
// and the last iterate z. The parameter is y; eval() replaces it by x.
#include <cstring>
#include <gannet/sdk_elementwise.hpp>

#include "weights.h"

GANNET_RULES_BEGIN

//   v <- b2 v + (1-b2) g^2;  u = g / (sqrt(v / (1 - b2^t)) + eps) + decay y
//   y <- y + c (z - y) + lr (b1 (1 - c) - 1) u;  z <- z - lr u            c: this step's weight in the average
template <class T>
struct ScheduleFreeRule {
  static constexpr gannet_state_spec kStates[] = {state_from_parameter("z"), state("exp_avg_sq")};
  T beta2, one_minus_beta2, bias2, eps, weight_decay, share, of_direction, minus_lr;

  explicit ScheduleFreeRule(const Step& s) {
    const ScheduleFreeWeight weight(s("lr"), s("warmup_steps"), s("r"), s("weight_lr_power"), s.kept<int64_t>(kStepCount),
                                    s.kept<double>(kWeightSum), s.kept<double>(kLargestRate));
    beta2 = static_cast<T>(s("betas", 1));
    one_minus_beta2 = static_cast<T>(1 - s("betas", 1));
    bias2 = static_cast<T>(s.bias_correction(s("betas", 1)));
    eps = static_cast<T>(s("eps"));
    weight_decay = static_cast<T>(s("weight_decay"));
    share = static_cast<T>(weight.share);
    const double beta1 = first_beta(s.kept<double>(kFirstBeta), s("betas", 0));
    of_direction = static_cast<T>(weight.lr * (beta1 * (1 - weight.share) - 1));
    minus_lr = static_cast<T>(-weight.lr);
  }
  template <class V>
  GANNET_DEVICE void operator()(V g, V& y, V& z, V& exp_avg_sq) const {
    exp_avg_sq = fma(one_minus_beta2 * g, g, beta2 * exp_avg_sq);
    const V direction = fma(V(weight_decay), y, g / (sqrt(exp_avg_sq / bias2) + eps));
    y = fma(V(share), z - y, y);
    y = fma(V(of_direction), direction, y);
    z = fma(V(minus_lr), direction, z);
  }
};

struct ScheduleFree {
  static constexpr gannet_param_spec kParams[] = {
      at_least(learning_rate("2.5e-3"), 0),
      below(at_least(numbers("betas", 2, "[0.9, 0.999]", "weight of the average in y, and decay of the second moment"), 0), 1),
      at_least(weight_decay("0.0", "weight decay, at y"), 0),
      sdk::eps("1e-8"),
      at_least(integer("warmup_steps", "0", "steps over which the learning rate grows to lr"), 0),
      at_least(number("r", "0.0", "a step's weight in the average grows with this power of its number"), 0),
      at_least(number("weight_lr_power", "2.0", "and with this power of the largest learning rate so far"), 0),
      max_grad_norm(),
  };
  static void check(const RuleParams& params, const HostServices&) {
    if (params.number("betas", 0) == 0)
      throw Failure(GANNET_INVALID_ARGUMENT,
                    "the first of 'betas' is 0: gradients would be taken at z alone, and the average could not be told from y");
    refuse_max_grad_norm(params);
  }
  static std::vector<gannet_state_spec> states(const RuleParams&) {
    auto all = sdk::detail::states_of_rule<ScheduleFreeRule<float>>();
    all.push_back(state("step_count", GANNET_STATE_SCALAR, GANNET_INT64));
    all.push_back(state("weight_sum", GANNET_STATE_SCALAR, GANNET_FLOAT64));
    all.push_back(state("largest_lr", GANNET_STATE_SCALAR, GANNET_FLOAT64));
    all.push_back(state("beta1", GANNET_STATE_SCALAR, GANNET_FLOAT64));
    return all;
  }
  template <class T, class Run>
  static void with_rule(const Step& s, Run&& run) {
    run(ScheduleFreeRule<T>(s));
  }
};

// Computes x = y + (1 - 1/b1) (z - y). z is passed as the gradient, and y is in the copy that x
// overwrites.
template <class T>
struct AverageRule {
  T share;
  explicit AverageRule(const Step& s) : share(static_cast<T>(1 - 1 / first_beta(s.kept<double>(kFirstBeta), s("betas", 0)))) {}
  template <class V>
  GANNET_DEVICE void operator()(V z, V& y) const {
    y = fma(V(share), z - y, y);
  }
};
struct ScheduleFreeAverage : ScheduleFree {
  template <class T, class Run>
  static void with_rule(const Step& s, Run&& run) {
    run(AverageRule<T>(s));
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE_FAMILY(ScheduleFree)
GANNET_ELEMENTWISE_FAMILY(ScheduleFreeAverage)

#if GANNET_RULE_IS_LAST
namespace gannet::rules {

class AdamWScheduleFree : public ScheduleFreeOptimizer {
 public:
  using ScheduleFreeOptimizer::ScheduleFreeOptimizer;

  void begin_step(const gannet_step_args& args) {
    const double kept = *static_cast<const double*>(args.states[kFirstBeta]), given = params().number("betas", 0);
    if (kept == 0 || kept == given || has_warned_) return;
    has_warned_ = true;
    if (rank() == 0)
      warn("AdamWScheduleFree continues with the first beta of its checkpoint, " + std::to_string(kept) +
           ", and not with the config's " + std::to_string(given) + ": the average is made with it");
  }

  void end_step(const gannet_step_args& args) {
    auto& first = *static_cast<double*>(args.states[kFirstBeta]);
    first = first_beta(first, params().number("betas", 0));
    auto& steps = *static_cast<int64_t*>(args.states[kStepCount]);
    auto& weight_sum = *static_cast<double*>(args.states[kWeightSum]);
    auto& largest = *static_cast<double*>(args.states[kLargestRate]);
    const double rate = args.hyper[0];
    const ScheduleFreeWeight weight(rate, params().number("warmup_steps"), params().number("r"),
                                    params().number("weight_lr_power"), steps, weight_sum, largest);
    weight_sum = weight.weight_sum;
    largest = weight.largest_rate;
    ++steps;
  }

  void evaluate(const gannet_update_args& args) {
    copy(args);
    gannet_update_args average = args;
    average.param = args.out;
    average.grad = args.states[kAverageBase];
    average.grad_dtype = args.param_dtype;
    average.grad_scale = 1;
    average.out = nullptr;
    average.out_dtype = GANNET_DTYPE_NONE;
    ScheduleFreeAverageKernel::update(*this, sdk::Step(params(), average), average);
  }

 private:
  bool has_warned_ = false;
  // Copies y into `out`, where x will be computed.
  void copy(const gannet_update_args& args) const {
    const uint64_t size = args.param_dtype == GANNET_FLOAT64 ? 8 : 4;
#if defined(__CUDACC__) || defined(__HIP__)
    update_on_device(args, [&](const gannet_update_args&) {
      return cudaMemcpyAsync(args.out, args.param, args.numel * size, cudaMemcpyDeviceToDevice,
                             static_cast<cudaStream_t>(args.stream));
    });
#else
    parallel_for(args.numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) {
      std::memcpy(static_cast<char*>(args.out) + begin * size, static_cast<const char*>(args.param) + begin * size,
                  (end - begin) * size);
    });
#endif
  }
};

}  // namespace gannet::rules

GANNET_ELEMENTWISE_PLUGINS("optimizer/adamwschedulefree@" GANNET_RULE_DEVICE,
                           gannet::sdk::optimizer<gannet::rules::AdamWScheduleFree>(
                               "AdamWScheduleFree", GANNET_RULE_DEVICE, GANNET_GPU_VERSION("1.0.0"),
                               "AdamW without a schedule: what is evaluated is an average of the iterates" GANNET_GPU_NOTE))
#endif
