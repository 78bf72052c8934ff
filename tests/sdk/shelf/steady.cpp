// The shelf's rule in C++: stochastic gradient descent with momentum, whose gradient may not outgrow its usual norm.
//
//   n = |g| of the parameter group;   f = limit * mean / n where n > limit * mean, else 1
//   v = momentum * v + f * g;         p -= lr * v
//   mean = decay * mean + (1 - decay) * n   (n at the first step)
//
// steady.c and steady.rs are the same rule with the same roundings: all of them leave the same parameters.
#include <cmath>
#include <gannet/sdk.hpp>
#include <stdexcept>
#include <string>

namespace {

using namespace gannet::sdk;

// Throws what the C++ library throws, so that its exceptions are thrown and caught in every C++ runtime of the shelf.
void require_room(double limit, double decay) {
  if (limit == 1 && decay == 0)
    throw std::invalid_argument(std::string("with 'limit' 1 and 'decay' 0 no gradient could ever grow: ") +
                                "give 'decay' a number above 0, or 'limit' one above 1");
}

struct Steady : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {
      at_least(learning_rate("1e-2"), 0),
      role<GANNET_ROLE_MOMENTUM>(below(at_least(dynamic_number("momentum", "0.9", "share of the last direction"), 0), 1)),
      at_least(number("limit", "2", "largest norm of the gradient, as a multiple of its running mean"), 1),
      below(at_least(number("decay", "0.75", "share of the last mean in the running mean"), 0), 1),
  };
  Steady(const gannet_host& host, const Params& params)
      : OptimizerBase(host, params), limit_(params.number("limit")), decay_(params.number("decay")) {
    try {
      require_room(limit_, decay_);
    } catch (const std::exception& error) {
      throw Failure(GANNET_INVALID_ARGUMENT, error.what());
    }
  }

  std::vector<gannet_state_spec> states() const {
    return {state("momentum_buffer", GANNET_STATE_PER_ELEMENT, GANNET_FLOAT32),
            state("mean_norm", GANNET_STATE_SCALAR, GANNET_FLOAT64)};
  }
  std::vector<gannet_sum_spec> wanted_sums() const { return {sum(GANNET_SUM_OF_GROUP)}; }

  void sums(const gannet_update_args& args, uint32_t, double* sums) {
    auto* grad = static_cast<const float*>(args.grad);
    for (uint64_t k = 0; k < args.segment_count; ++k) {
      const gannet_segment& part = segment(args, k);
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) {
        const double scaled = grad[i] * args.grad_scale;
        sums[k * args.sum_count] += scaled * scaled;
      }
    }
  }

  void update(const gannet_update_args& args) {
    if (args.segment_count == 0) return;
    const double norm = std::sqrt(args.sums[0]), usual = limit_ * *static_cast<const double*>(args.states[1]);
    const double limited = usual > 0 && norm > usual ? usual / norm : 1;
    const auto factor = static_cast<float>(args.grad_scale * limited);
    const auto lr = static_cast<float>(args.hyper[0]), momentum = static_cast<float>(args.hyper[1]);
    auto* param = static_cast<float*>(args.param);
    auto* grad = static_cast<const float*>(args.grad);
    auto* velocity = static_cast<float*>(args.states[0]);
    parallel_for(args.numel, 4096, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) {
        velocity[i] = momentum * velocity[i] + factor * grad[i];
        param[i] -= lr * velocity[i];
      }
    });
  }

  void end_step(const gannet_step_args& args) {
    if (args.tensor_count == 0) return;
    auto* mean = static_cast<double*>(args.states[1]);
    const double norm = std::sqrt(args.sums[0]);
    *mean = *mean > 0 ? decay_ * *mean + (1 - decay_) * norm : norm;
  }

 private:
  double limit_, decay_;
};

}  // namespace

GANNET_PLUGINS("optimizer/steady@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<Steady>("Steady", "cpu", "1.0.0", "momentum with a limited gradient"))
