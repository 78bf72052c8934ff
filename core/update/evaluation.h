// Evaluation weights, where they differ from the trained ones: the moving average in
// Range::average, or the weights of an optimizer that declares its own (Schedule-Free; averages of
// weights; local steps, after which the ranks have different weights). They temporarily replace the
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

/// Returns whether the ranks have different parameters in this group, as they do after a local step
/// (GANNET_REDUCED_LATER). `applied_steps`: the number of updates so far.
bool ranks_differ(const RankContext& context, const Group& group, int64_t applied_steps);

class EvaluationWeights {
 public:
  EvaluationWeights(RankContext& context, ParameterStore& store, std::vector<Group>& groups)
      : context_(context), store_(store), groups_(groups) {}

  // Whether some range has evaluation weights that differ from the trained ones. `applied_steps`:
  // the number of updates so far.
  bool exist(int64_t applied_steps) const;
  bool are_in_use() const { return in_use_; }
  // enter() and leave() are collective, and no gradient may be in flight.
  void enter(int64_t applied_steps);
  void leave();
  // The evaluation weights of a parameter that this rank holds in full, as a copy in
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
