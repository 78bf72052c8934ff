// The moving average of the parameters ("gannet": {"ema": ...}): when it moves, and by how much.
//
//   average <- average + (1 - decay) * (master - average)      after every applied update, in the masters' type
//
// The same numbers as `average.add_((master - average).mul_(1 - decay))` in LibTorch: each operation is rounded on its own, so
// that the bits do not depend on how the ranks or the pages cut a tensor. On a device it is lerp_, one pass.
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
    bool warmup = false;            // min(decay, (1 + n) / (10 + n)) in the n-th update that is averaged, as TensorFlow's
    int64_t update_after_step = 0;  // up to this update the average is a copy of the masters
    /// In this update, counted from 1.
    double decay_of(int64_t update) const;
  };

  explicit Average(ParameterStore& store) : store_(store) {}
  /// From here on the store's ranges have one each (ParameterStore::add_average).
  void use(const Rule& rule) { rule_ = rule, is_on_ = true; }
  bool is_on() const { return is_on_; }
  /// Until its first update it is what the masters are, whatever the program writes into them: weights that it loads.
  void set_fresh(bool on) { is_fresh_ = on; }
  void follow_masters() const;
  /// Before the passes of an update over the pieces, which is the `update`-th, counted from 1.
  void begin(int64_t update) {
    follow_masters();
    is_fresh_ = false;
    weight_ = 1 - rule_.decay_of(update);
  }
  /// Of a piece, behind its update: `numel` elements of each.
  void move(const at::Tensor& average, const at::Tensor& masters) const;
  /// Of the parameters that no piece has, or of all: `of(parameter)` says which.
  void move_parameters(const Range& range, const std::function<bool(size_t parameter)>& of) const;
  void move_all() const;

 private:
  ParameterStore& store_;
  Rule rule_;
  bool is_on_ = false, is_fresh_ = true;
  double weight_ = 0;  // 1 - decay, of the update in hand
};

}  // namespace gannet
