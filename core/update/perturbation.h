// The parameters at which a step's second pass takes its gradient (GANNET_OPTIMIZER_PERTURBS), in the place of the masters, and
// the masters, kept until the step's update.
//
//   perturbation.keep(range, place, masters);   // of each piece, before it is moved
//   ... the second pass ...
//   perturbation.restore();                     // the masters again, bit for bit
//   perturbation.publish();                     // and what the model reads, unless an update follows that publishes all of it
#pragma once

#include <vector>

#include "params/range.h"
#include "params/store.h"

namespace gannet {

class Perturbation {
 public:
  explicit Perturbation(ParameterStore& store) : store_(store) {}

  bool is_in_use() const { return !kept_.empty(); }
  /// `values`: this rank's masters at `place`, which are about to be moved. Each place once.
  void keep(Range& range, const zero::Shard& place, const at::Tensor& values);
  /// What was kept of `place`, a view; undefined where it is not in memory.
  at::Tensor kept(const Range& range, const zero::Shard& place);
  /// No step of this optimizer will be perturbed.
  void release() noexcept { kept_.clear(), memory_.clear(); }
  void restore();
  void publish() { store_.publish_all(); }  // every rank calls it
  /// The masters are undefined, or others have taken their place.
  void forget() noexcept { kept_.clear(); }

 private:
  struct Kept {
    Range* range;
    zero::Shard place;
  };
  Array& memory_of(const Range& range);

  ParameterStore& store_;
  std::vector<Array> memory_;  // [ranges] as long as the masters, where they lie; from one step to the next
  std::vector<Kept> kept_;
};

}  // namespace gannet
