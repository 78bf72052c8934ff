// An optimizer with a loop and params of its own, as docs/plugin_authors.md describes it. authors_page_test.py compiles it.
#include <cmath>
#include <gannet/sdk.hpp>
#include <gannet/sdk_sums.hpp>

using namespace gannet::sdk;

struct Layer : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-2"), text("mode", "\"plain\"", "plain|nesterov", "momentum")};
  Layer(const gannet_host& host, const Params& params)
      : OptimizerBase(host, params), nesterov(params.text("mode") == "nesterov") {}
  std::vector<gannet_state_spec> states() const { return {state("momentum_buffer")}; }
  void update(const gannet_update_args& a) {
    auto* p = static_cast<float*>(a.param);
    auto* m = static_cast<float*>(a.states[0]);
    const auto* g = static_cast<const float*>(a.grad);
    const float lr = static_cast<float>(a.hyper[0]), scale = static_cast<float>(a.grad_scale);
    parallel_for(a.numel, 4096, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) {
        m[i] = 0.9f * m[i] + g[i] * scale;
        p[i] -= lr * (nesterov ? 0.9f * m[i] + g[i] * scale : m[i]);
      }
    });
  }
  bool nesterov;
};

GANNET_PLUGINS("optimizer/layer@cpu", GANNET_TIER_STABLE, optimizer<Layer>("Layer", "cpu", "1.0", "momentum"))
