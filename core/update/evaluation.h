// The weights to evaluate with, of optimizers that train at other ones (Schedule-Free, averages of weights): put in the place of
// the masters for a while, and published like any update.
//
//   EvaluationWeights weights(context, store, groups);
//   if (weights.exist()) weights.enter(applied_steps);   // the model is what the run would hand out
//   ...
//   weights.leave();                                     // the masters again, bit for bit
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "params/range.h"
#include "params/rank_context.h"
#include "params/store.h"

namespace gannet {

class EvaluationWeights {
 public:
  EvaluationWeights(RankContext& context, ParameterStore& store, std::vector<Group>& groups)
      : context_(context), store_(store), groups_(groups) {}

  bool exist() const;  // some group's optimizer has them
  bool are_in_use() const { return in_use_; }
  // Both are called on every rank, while no gradient is on its way. `applied_steps`: updates so far.
  void enter(int64_t applied_steps);
  void leave();

 private:
  struct Kept {  // this rank's masters of a range, on the tier that they lie on
    Range* range;
    Array masters;
  };
  void evaluate(Range& range, const Array& kept, int64_t applied_steps);

  RankContext& context_;
  ParameterStore& store_;
  std::vector<Group>& groups_;
  std::vector<Kept> kept_;
  bool in_use_ = false;
};

}  // namespace gannet
