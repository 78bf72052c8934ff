// An optimizer of two passes that also takes a second gradient, in every step; and the mistakes of its author, by a parameter.
#include <algorithm>
#include <gannet/sdk.hpp>
#include <gannet/sdk_float16.hpp>
#include <stdexcept>

namespace {

using namespace gannet::sdk;

struct BothPasses : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {
      learning_rate("1e-2"), text("mistake", "\"none\"", "none|error|throw|state", "of perturb(), in its second call")};
  BothPasses(const gannet_host& host, const Params& params) : OptimizerBase(host, params), mistake_(params.text("mistake")) {}
  bool supports(uint32_t param, uint32_t, uint32_t) const { return param == GANNET_FLOAT32; }
  uint64_t capabilities() const {
    return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_PERTURBS | GANNET_OPTIMIZER_SECOND_GRADIENT;
  }
  std::vector<gannet_state_spec> states() const { return {state("momentum")}; }
  bool wants_second_gradient(uint64_t) const { return true; }

  void perturb(const gannet_update_args& args) {
    const bool errs = ++calls_ == 2;
    if (errs && mistake_ == "error") throw Failure(GANNET_UNSUPPORTED, "it gives up in the middle");
    if (errs && mistake_ == "throw") throw std::runtime_error("thrown by perturb");
    if (errs && mistake_ == "state") static_cast<float*>(args.states[0])[0] = 1;
    for (uint64_t i = 0; i < args.numel; ++i) static_cast<float*>(args.out)[i] = static_cast<const float*>(args.param)[i] + 0.25f;
  }
  void update(const gannet_update_args& args) {
    std::vector<float> grad(args.numel);
    if (args.grad_dtype == GANNET_FLOAT32)
      std::copy_n(static_cast<const float*>(args.grad), args.numel, grad.data());
    else
      widen(grad.data(), args.grad, args.numel, args.grad_dtype);
    auto* param = static_cast<float*>(args.param);
    for (uint64_t i = 0; i < args.numel; ++i) param[i] -= static_cast<float>(args.hyper[0] * args.grad_scale) * grad[i];
    if (args.out) narrow(args.out, param, args.numel, args.out_dtype);
  }

 private:
  std::string mistake_;
  int calls_ = 0;
};

}  // namespace

GANNET_PLUGINS("optimizer/bothpasses@cpu", GANNET_TIER_STABLE,
               optimizer<BothPasses>("BothPasses", "cpu", "1.0.0", "two passes and a second gradient"))
