// The moving average of the parameters ("gannet": {"ema": ...}): when it is updated, and by how
// much.
//
//   average <- average + (1 - decay) * (master - average)      after every applied update, in the masters' dtype
//
// Gives the same numbers as `average.add_((master - average).mul_(1 - decay))` in LibTorch: each
// operation is rounded separately, so the bits do not depend on how ranks or pages cut a tensor. On
// a device, lerp_ does this in one pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "params/range.h"
#include "params/store.h"

namespace gannet {

class Average {
 public:
  struct Rule {
    double decay = 0;
    bool warmup = false;            // the n-th averaged update's decay is min(decay, (1 + n) / (10 + n)), as in TensorFlow
    int64_t update_after_step = 0;  // up to this update, the average is a copy of the masters
    /// `update` counts from 1.
    double decay_of(int64_t update) const;
  };

  explicit Average(ParameterStore& store) : store_(store) {}
  /// Requires that every range of the store has an average (ParameterStore::add_average).
  void use(const Rule& rule) { rule_ = rule, is_on_ = true; }
  bool is_on() const { return is_on_; }
  /// Until its first update, a fresh average follows the masters, so that it includes weights that
  /// the program loads.
  void set_fresh(bool on) { is_fresh_ = on; }
  void follow_masters() const;
  /// Call before an update's passes over the pieces. `update` is its number, counted from 1.
  void begin(int64_t update) {
    follow_masters();
    is_fresh_ = false;
    weight_ = 1 - rule_.decay_of(update);
  }
  /// Moves a piece's average after its update. Both tensors have as many elements as the piece.
  void move(const at::Tensor& average, const at::Tensor& masters) const;
  /// Moves the average outside the passes over pieces: for the parameters that `of(parameter)`
  /// selects, or for all.
  void move_parameters(const Range& range, const std::function<bool(size_t parameter)>& of) const;
  void move_all() const;

 private:
  ParameterStore& store_;
  Rule rule_;
  bool is_on_ = false, is_fresh_ = true;
  double weight_ = 0;  // 1 - decay of the current update
};

}  // namespace gannet
