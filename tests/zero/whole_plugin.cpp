// A rule that needs whole tensors: momentum over its own root mean square, which is summed over the tensor in one order. It
// refuses a tensor that it is given a part of.
#include <cmath>
#include <gannet/sdk.hpp>

namespace {

using namespace gannet::sdk;

struct Whole : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-2")};
  using OptimizerBase::OptimizerBase;

  uint64_t capabilities() const { return GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR; }
  std::vector<gannet_state_spec> states() const {
    return {state("momentum"), state("count", GANNET_STATE_PER_TENSOR, GANNET_FLOAT32)};
  }
  void begin_step(const gannet_step_args& args) {
    auto* count = static_cast<float*>(args.states[1]);
    for (uint64_t t = 0; t < args.tensor_count; ++t) ++count[tensor(args, t).index];
  }
  void update(const gannet_update_args& args) {
    auto* param = static_cast<float*>(args.param);
    auto* grad = static_cast<const float*>(args.grad);
    auto* momentum = static_cast<float*>(args.states[0]);
    const auto* count = static_cast<const float*>(args.states[1]);
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = segment(args, s);
      if (part.tensor_offset != 0 || part.numel != part.tensor_numel)
        throw Failure(GANNET_INTERNAL, "a part of tensor " + std::to_string(part.tensor_index) + ", elements " +
                                           std::to_string(part.tensor_offset) + " on");
      double squares = 0;
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) {
        momentum[i] = 0.9f * momentum[i] + static_cast<float>(grad[i] * args.grad_scale);
        squares += double(momentum[i]) * momentum[i];
      }
      const double rms = std::sqrt(squares / static_cast<double>(part.numel)) + 1e-8 * count[part.tensor_index];
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i)
        param[i] -= static_cast<float>(args.hyper[0] * momentum[i] / rms);
    }
  }
};

}  // namespace

GANNET_PLUGINS("optimizer/whole", GANNET_TIER_STABLE, optimizer<Whole>("Whole", "", "0.1", "momentum over its root mean square"))
