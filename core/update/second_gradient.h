// The second gradient of a step (GANNET_OPTIMIZER_SECOND_GRADIENT): averaged, unscaled, in the
// masters' dtype and tier.
//
//   if (second.is_wanted(applied_steps)) second.keep(factor, applied_steps);   // the reducer holds the gradient
//   ... the first gradient's pass, and the update with args.second_grad from second.of(range) ...
//   second.drop();
#pragma once

#include <cstdint>
#include <vector>

#include "params/range.h"
#include "params/store.h"

namespace gannet {

class SecondGradient {
 public:
  SecondGradient(ParameterStore& store, const std::vector<Group>& groups) : store_(store), groups_(groups) {}

  /// Whether some group's optimizer uses a second gradient in the next update.
  /// `applied_steps`: the number of updates so far.
  bool is_wanted(int64_t applied_steps) const;
  /// Stores the ranges' current gradients, multiplied by `factor`.
  void keep(double factor, int64_t applied_steps);
  bool is_kept() const { return !kept_.empty(); }
  /// The range's second gradient; null if the range's optimizer does not use one.
  const Array* of(const Range& range) const;
  void drop() noexcept { kept_.clear(); }

 private:
  bool is_wanted_by(const Group& group, int64_t applied_steps) const;

  ParameterStore& store_;
  const std::vector<Group>& groups_;
  struct KeptGradient {
    const Range* range;
    Array values;  // [shard_numel]
  };
  std::vector<KeptGradient> kept_;
};

}  // namespace gannet
