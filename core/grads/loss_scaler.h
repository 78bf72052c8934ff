/// The loss scale for fp16 training, dynamic or static.
///
/// The scale doubles after `window` clean steps, and halves on an overflow once `hysteresis` is
/// used up, down to `min_scale`. This is a value type: copy it, compare it, put its state in a
/// checkpoint. It follows DynamicLossScaler of DeepSpeed 0.19, and is the same at every ZeRO stage.
///
///   LossScaler scaler({.initial_scale_power = 16});
///   double loss_scale = scaler.scale();              // factor for this step's gradients
///   scaler.update(/*overflow=*/false);               // after the step: sets the scale of the next one
///
///   LossScaler fixed = LossScaler::fixed(128);       // a static scale; LossScaler::fixed(1) for fp32 and bf16
#pragma once

#include <cstdint>

namespace gannet {

class LossScaler {
 public:
  struct Options {
    int64_t initial_scale_power = 16;
    int64_t window = 1000;
    int64_t hysteresis = 2;               // number of overflows until the scale is halved
    bool consecutive_hysteresis = false;  // a clean step restores the hysteresis; otherwise only a doubling does
    double min_scale = 1;
    bool operator==(const Options&) const = default;
  };
  /// The state in a checkpoint, in addition to the options.
  struct State {
    double scale = 1;
    int64_t iteration = 0;
    int64_t last_overflow_iteration = -1;
    int64_t hysteresis_left = 1;
    bool operator==(const State&) const = default;
  };

  explicit LossScaler(Options options);
  static LossScaler fixed(double scale);

  double scale() const { return state_.scale; }
  bool is_dynamic() const { return dynamic_; }

  /// Records the outcome of one optimizer step. Throws Error(kLossScaleExhausted) if an overflow
  /// would halve a scale that is already min_scale; the state is then left as before. A static
  /// scale never changes.
  void update(bool overflow);

  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }
  /// Resets a dynamic scale to its options; a static scale does not change.
  void restart() {
    if (dynamic_) *this = LossScaler(options_);
  }
  bool operator==(const LossScaler&) const = default;

 private:
  Options options_;
  State state_;
  bool dynamic_ = true;
};

}  // namespace gannet
