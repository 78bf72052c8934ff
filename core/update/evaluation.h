// The weights to evaluate with, where they are not those that are trained: of optimizers that say so (Schedule-Free, averages of
// weights; local steps, after which each rank has weights of its own), and the moving average that Range::average is. They are
// put in the place of the masters for a while, and published like any update.
//
//   EvaluationWeights weights(context, store, groups);
//   if (weights.exist(applied_steps)) weights.enter(applied_steps);   // the model is what the run would hand out
//   ...
//   weights.leave();                                                  // the masters again, bit for bit
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "params/range.h"
#include "params/rank_context.h"
#include "params/store.h"

namespace gannet {

/// Whether the ranks have different parameters of this group: after a local step (GANNET_REDUCED_LATER). `applied_steps`: updates
/// so far.
bool ranks_differ(const RankContext& context, const Group& group, int64_t applied_steps);

class EvaluationWeights {
 public:
  EvaluationWeights(RankContext& context, ParameterStore& store, std::vector<Group>& groups)
      : context_(context), store_(store), groups_(groups) {}

  // Some range has others than those that are trained. `applied_steps`: updates so far.
  bool exist(int64_t applied_steps) const;
  bool are_in_use() const { return in_use_; }
  // Both are called on every rank, while no gradient is on its way.
  void enter(int64_t applied_steps);
  void leave();
  // While they are not in use: a copy of those of a parameter that this rank has whole, in TrainedParameter::shape and its
  // master's dtype.
  at::Tensor of(const Range& range, size_t parameter, int64_t applied_steps) const;

 private:
  struct Kept {  // this rank's masters of a range, on the tier that they lie on
    Range* range;
    Array masters;
  };
  bool are_others(const Group& group, int64_t applied_steps) const;
  void swap_average(Range& range) const;
  at::Tensor evaluate(const Range& range, const zero::Part& part, int64_t applied_steps) const;

  RankContext& context_;
  ParameterStore& store_;
  std::vector<Group>& groups_;
  std::vector<Kept> kept_;
  bool in_use_ = false;
};

}  // namespace gannet
