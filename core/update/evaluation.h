// Evaluation weights, where they differ from the trained ones: the moving average in
// Range::average, or weights of an optimizer that declares them (Schedule-Free, averages of
// weights; local steps, after which ranks have different weights). They temporarily replace the
// masters and are published like an update.
//
//   EvaluationWeights weights(context, store, groups);
//   if (weights.exist(applied_steps)) weights.enter(applied_steps);   // the model now has the run's final weights
//   ...
//   weights.leave();                                                  // restores the masters bit for bit
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "params/range.h"
#include "params/rank_context.h"
#include "params/store.h"

namespace gannet {

/// Whether ranks have different parameters in this group, which is so after a local step
/// (GANNET_REDUCED_LATER). `applied_steps`: number of updates so far.
bool ranks_differ(const RankContext& context, const Group& group, int64_t applied_steps);

class EvaluationWeights {
 public:
  EvaluationWeights(RankContext& context, ParameterStore& store, std::vector<Group>& groups)
      : context_(context), store_(store), groups_(groups) {}

  // Whether some range has evaluation weights that differ from the trained ones. `applied_steps`:
  // number of updates so far.
  bool exist(int64_t applied_steps) const;
  bool are_in_use() const { return in_use_; }
  // Both are collective. No gradient may be in flight.
  void enter(int64_t applied_steps);
  void leave();
  // The evaluation weights of a parameter that this rank has whole, as a copy in
  // TrainedParameter::shape and the masters' dtype. Call while they are not in use.
  at::Tensor of(const Range& range, size_t parameter, int64_t applied_steps) const;

 private:
  struct KeptMasters {  // this rank's masters of a range, in their tier
    Range* range;
    Array masters;
  };
  bool are_others(const Group& group, int64_t applied_steps) const;
  void swap_average(Range& range) const;
  at::Tensor evaluate(const Range& range, const zero::TensorPart& part, int64_t applied_steps) const;

  RankContext& context_;
  ParameterStore& store_;
  std::vector<Group>& groups_;
  std::vector<KeptMasters> kept_;
  bool in_use_ = false;
};

}  // namespace gannet
