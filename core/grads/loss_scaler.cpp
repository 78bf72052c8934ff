#include "grads/loss_scaler.h"

#include <gannet/error.h>
#include <gannet/value.h>

#include <algorithm>
#include <cmath>

#include "base/format.h"

namespace gannet {

LossScaler::LossScaler(Options options) : options_(options) {
  state_.scale = std::ldexp(1.0, static_cast<int>(options.initial_scale_power));
  state_.hysteresis_left = options.hysteresis;
}

LossScaler LossScaler::fixed(double scale) {
  LossScaler scaler(Options{});
  scaler.dynamic_ = false;
  scaler.state_ = State{};
  scaler.state_.scale = scale;
  return scaler;
}

void LossScaler::update(bool overflow) {
  if (!dynamic_) return;
  if (overflow) {
    if (state_.hysteresis_left <= 1) {  // may be below 1 in a checkpoint from another program
      if (state_.scale <= options_.min_scale)
        throw Error(
            ErrorCode::kLossScaleExhausted,
            formatted("gradients overflow at the smallest loss scale, {} (min_loss_scale)", Value(options_.min_scale).to_json()),
            "the loss or a gradient is itself not finite: look for the first non-finite value, lower the learning rate, "
            "or train in bf16");
      state_.scale = std::max(state_.scale / 2, options_.min_scale);
    } else {
      --state_.hysteresis_left;
    }
    state_.last_overflow_iteration = state_.iteration;
  } else {
    if (options_.consecutive_hysteresis) state_.hysteresis_left = options_.hysteresis;
    const int64_t clean = state_.iteration - state_.last_overflow_iteration - 1;
    if (clean > 0 && clean % options_.window == 0) {
      if (!options_.consecutive_hysteresis) state_.hysteresis_left = options_.hysteresis;
      state_.scale *= 2;
    }
  }
  ++state_.iteration;
}

}  // namespace gannet
