// SAM around SGD with momentum (Foret et al. 2021; adaptive: Kwon et al. 2021). A step's gradient
// is taken at w = p + e(p), which perturb() writes; the update is SGD's, at p.
#include <cmath>
#include <cstring>
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

// The move w <- p + k g, with the gradient already multiplied by k = rho / ||g||.
template <class T>
struct SamMoveRule {
  explicit SamMoveRule(const Step&) {}
  template <class V>
  GANNET_DEVICE void operator()(V move, V& param) const {
    param = param + move;
  }
};
// The adaptive move w <- p + k p^2 g.
template <class T>
struct SamAdaptiveMoveRule {
  explicit SamAdaptiveMoveRule(const Step&) {}
  template <class V>
  GANNET_DEVICE void operator()(V move, V& param) const {
    param = fma(param * param, move, param);
  }
};

//   g <- g + decay p;  b <- momentum b + g, at the first step g;  p <- p - lr b, or with Nesterov's p - lr (g + momentum b)
template <class T>
struct SamMomentumRule {
  static constexpr const char* kStates[] = {"momentum_buffer"};
  T weight_decay, minus_lr, momentum, keep, of_gradient, of_buffer;
  explicit SamMomentumRule(const Step& s)
      : weight_decay(static_cast<T>(s("weight_decay"))),
        minus_lr(static_cast<T>(-s("lr"))),
        momentum(static_cast<T>(s("momentum"))),
        keep(s.count() <= 1 ? T(0) : momentum),
        of_gradient(s.flag("nesterov") ? T(1) : T(0)),
        of_buffer(s.flag("nesterov") ? momentum : T(1)) {}
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& param, V& buffer) const {
    const V g = fma(V(weight_decay), param, gradient);
    buffer = fma(V(keep), buffer, g);
    param = fma(V(minus_lr), fma(V(of_buffer), buffer, of_gradient * g), param);
  }
};
template <class T>
struct SamPlainRule {
  T weight_decay, minus_lr;
  explicit SamPlainRule(const Step& s) : weight_decay(static_cast<T>(s("weight_decay"))), minus_lr(static_cast<T>(-s("lr"))) {}
  template <class V>
  GANNET_DEVICE void operator()(V gradient, V& param) const {
    param = fma(V(minus_lr), fma(V(weight_decay), param, gradient), param);
  }
};

struct SamUpdate {
  static constexpr gannet_param_spec kParams[] = {
      at_least(learning_rate("1e-3"), 0),
      momentum("0.9", "momentum factor; 0: no momentum buffer is kept"),
      at_least(weight_decay("0.0", "L2 regularisation, at the parameters"), 0),
      boolean("nesterov", "false", "Nesterov's momentum"),
      at_least(dynamic_number("rho", "0.05", "radius: the 2-norm of the perturbation of the whole model"), 0),
      boolean("adaptive", "false", "ASAM: the perturbation of an element grows with its own size"),
      max_grad_norm(),
  };
  static bool has_buffer(const RuleParams& params) { return params.number("momentum") != 0; }
  static void check(const RuleParams& params, const HostServices&) {
    if (params.flag("nesterov") && !has_buffer(params))
      throw Failure(GANNET_INVALID_ARGUMENT, "'nesterov' needs a 'momentum' above 0");
    refuse_max_grad_norm(params);
  }
  static std::vector<gannet_state_spec> states(const RuleParams& params) {
    if (!has_buffer(params)) return {};
    return sdk::detail::states_of_rule<SamMomentumRule<float>>();
  }
  template <class T, class Run>
  static void with_rule(const Step& s, Run&& run) {
    if (has_buffer(s.params())) return run(SamMomentumRule<T>(s));
    if (s("momentum") != 0)
      throw Failure(
          GANNET_INVALID_ARGUMENT,
          "momentum was changed from 0, but SAM without momentum keeps no buffer: give a momentum above 0 in the config");
    run(SamPlainRule<T>(s));
  }
};

struct SamMove : SamUpdate {
  template <class T, class Run>
  static void with_rule(const Step& s, Run&& run) {
    if (s.flag("adaptive")) return run(SamAdaptiveMoveRule<T>(s));
    run(SamMoveRule<T>(s));
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE_FAMILY(SamUpdate)
GANNET_ELEMENTWISE_FAMILY(SamMove)

#if GANNET_RULE_IS_LAST
#include <gannet/sdk_float16.hpp>

#include "optimizers/device/part.h"

namespace gannet::rules {

class Sam : public SamUpdateOptimizer {
 public:
  using SamUpdateOptimizer::SamUpdateOptimizer;
  uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_PERTURBS; }
  // One sum: the squares of the gradient or, if adaptive, of parameter * gradient.
  std::vector<gannet_sum_spec> wanted_sums() const { return {sdk::sum_to_perturb(GANNET_SUM_OF_MODEL)}; }

  // Sums the blocks in parallel, and then adds the sums of a tensor's blocks in order.
  void sums(const gannet_update_args& args, uint32_t, double* sums) {
    blocks_.clear();
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const TensorBlocks of_tensor(sdk::segment(args, s));
      for (uint64_t b = 0; b < of_tensor.count(); ++b) blocks_.push_back({s, of_tensor.begin(b), of_tensor.end(b), 0});
    }
    const bool is_adaptive = params().flag("adaptive");
    parallel_for(blocks_.size(), 1, [&](uint64_t begin, uint64_t end) {
      with_numbers<Types>(args, [&](auto number, const auto* grad) {
        using T = decltype(number);
        const T* const param = is_adaptive ? static_cast<const T*>(args.param) : nullptr;
        for (uint64_t b = begin; b < end; ++b)
          blocks_[b].squares = squares_of(grad, param, args.grad_scale, blocks_[b].begin, blocks_[b].end);
      });
    });
    for (const Block& block : blocks_) sums[args.sum_count * block.segment] += block.squares;
  }

  void perturb(const gannet_update_args& args) {
    const double norm = args.segment_count > 0 ? std::sqrt(args.sums[0]) : 0;  // of the model: the same in every row
    const double rho = args.hyper[kRho];
    const uint64_t size = element_bytes(args.param_dtype);
    parallel_for(args.numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) {
      std::memcpy(static_cast<char*>(args.out) + begin * size, static_cast<const char*>(args.param) + begin * size,
                  (end - begin) * size);
    });
    gannet_update_args move = args;
    move.param = args.out;
    move.grad_scale = args.grad_scale * (rho / (norm + 1e-12));
    move.out = nullptr;
    move.out_dtype = GANNET_DTYPE_NONE;
    SamMoveKernel::update(*this, sdk::Step(params(), move), move);
  }

 private:
  static constexpr size_t kRho = 3;  // index among the dynamic params: lr, momentum, weight_decay, rho
  struct Types {
    using BFloat16 = sdk::BFloat16;
    using Half = sdk::Float16;
  };
  struct Block {
    uint64_t segment, begin, end;  // `begin` and `end` are indices in the range
    double squares;
  };
  // Sums in fp64, in lanes that a compiler can vectorize, and always in the same order.
  template <class G, class T>
  static double squares_of(const G* grad, const T* param, double scale, uint64_t begin, uint64_t end) {
    double lanes[8] = {};
    const auto value = [&](uint64_t i) {
      const double g = static_cast<double>(static_cast<T>(grad[i])) * scale;
      return param ? g * static_cast<double>(param[i]) : g;
    };
    uint64_t i = begin;
    for (; i + 8 <= end; i += 8)
      for (uint64_t l = 0; l < 8; ++l) lanes[l] += value(i + l) * value(i + l);
    for (; i < end; ++i) lanes[(i - begin) & 7] += value(i) * value(i);
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
  std::vector<Block> blocks_;  // kept between calls, so that a step allocates nothing
};

}  // namespace gannet::rules

GANNET_ELEMENTWISE_PLUGINS("optimizer/sam@" GANNET_RULE_DEVICE,
                           gannet::sdk::optimizer<gannet::rules::Sam>(
                               "SAM", GANNET_RULE_DEVICE, "1.0.0",
                               "sharpness-aware minimization around SGD: engine->perturb() ends the first of two passes"))
#endif
