// Stochastic gradient descent with momentum, as torch.optim.SGD writes it:
//   v = momentum * v + (1 - dampening) * g   (v = g at the first step),   p -= lr * v
#include <gannet/sdk.hpp>

namespace {

using namespace gannet::sdk;

struct Momentum : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {
      at_least(learning_rate("1e-3"), 0),
      role<GANNET_ROLE_MOMENTUM>(
          below(at_least(dynamic_number("momentum", "0.9", "share of the last direction that is kept"), 0), 1)),
      number("dampening", "0", "share of the gradient that is left out"),
  };
  Momentum(const gannet_host& host, const Params& params) : OptimizerBase(host, params), dampening_(params.number("dampening")) {}

  std::vector<gannet_state_spec> states() const { return {state("momentum_buffer", GANNET_STATE_PER_ELEMENT, GANNET_FLOAT32)}; }

  void update(const gannet_update_args& args) {
    auto* param = static_cast<float*>(args.param);
    auto* grad = static_cast<const float*>(args.grad);
    auto* velocity = static_cast<float*>(args.states[0]);
    const auto lr = static_cast<float>(args.hyper[0]), momentum = static_cast<float>(args.hyper[1]);
    const auto fresh = static_cast<float>(args.step == 1 ? 1 : 1 - dampening_), scale = static_cast<float>(args.grad_scale);
    parallel_for(args.numel, 4096, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) {
        velocity[i] = momentum * velocity[i] + fresh * scale * grad[i];
        param[i] -= lr * velocity[i];
      }
    });
  }

 private:
  double dampening_;
};

}  // namespace

GANNET_PLUGINS("optimizer/momentum@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<Momentum>("Momentum", "cpu", "1.0.0", "gradient descent with momentum"))
