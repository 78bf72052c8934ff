// A rule that needs whole tensors: momentum over its own root mean square, which is summed over the tensor in one order. It
// refuses a tensor that it is given a part of.
#include <cmath>
#include <gannet/sdk.hpp>

namespace {

using namespace gannet::sdk;

struct Whole : OptimizerBase {
  static constexpr uint64_t kCapabilities = GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR;
  static constexpr gannet_param_spec kParams[] = {dynamic_number("lr", "1e-2", "learning rate")};
  using OptimizerBase::OptimizerBase;

  std::vector<gannet_state_spec> states() const {
    return {state("momentum"), state("count", GANNET_STATE_PER_TENSOR, GANNET_FLOAT32)};
  }
  void update(const gannet_update_args& args) {
    auto* param = static_cast<float*>(args.param);
    auto* grad = static_cast<const float*>(args.grad);
    auto* momentum = static_cast<float*>(args.states[0]);
    auto* count = static_cast<float*>(args.states[1]);
    uint64_t first = 0;
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const auto& segment =
          *reinterpret_cast<const gannet_segment*>(reinterpret_cast<const char*>(args.segments) + s * args.segment_stride);
      if (segment.tensor_offset != 0 || segment.numel != segment.tensor_numel)
        throw Failure(GANNET_INTERNAL, "a part of tensor " + std::to_string(segment.tensor_id) + ", elements " +
                                           std::to_string(segment.tensor_offset) + " on");
      if (s == 0) first = segment.tensor_id;
      double squares = 0;
      for (uint64_t i = segment.offset; i < segment.offset + segment.numel; ++i) {
        momentum[i] = 0.9f * momentum[i] + static_cast<float>(grad[i] * args.grad_scale);
        squares += double(momentum[i]) * momentum[i];
      }
      const float steps = ++count[segment.tensor_id - first];
      const double rms = std::sqrt(squares / static_cast<double>(segment.numel)) + 1e-8 * steps;
      for (uint64_t i = segment.offset; i < segment.offset + segment.numel; ++i)
        param[i] -= static_cast<float>(args.hyper[0] * momentum[i] / rms);
    }
  }
};

}  // namespace

GANNET_PLUGINS("optimizer/whole", GANNET_TIER_STABLE, optimizer<Whole>("Whole", "", "0.1", "momentum over its root mean square"))
