// The perturbed parameters at which a step's second pass computes its gradient
// (GANNET_OPTIMIZER_PERTURBS). They replace the masters, which are kept until the step's update.
//
//   perturbation.keep(range, place, masters);   // for each piece, before it is moved
//   ... the second pass ...
//   perturbation.restore();                     // restores the masters bit for bit
//   perturbation.publish();                     // publishes them as the model's parameters; not needed if an update follows
#pragma once

#include <vector>

#include "params/range.h"
#include "params/store.h"

namespace gannet {

class Perturbation {
 public:
  explicit Perturbation(ParameterStore& store) : store_(store) {}

  bool is_in_use() const { return !kept_.empty(); }
  /// `values`: this rank's masters at `place`, before they are moved. Each place is kept once.
  void keep(Range& range, const zero::Shard& place, const at::Tensor& values);
  /// A view of the kept values of `place`; undefined if they are not in memory.
  at::Tensor kept(const Range& range, const zero::Shard& place);
  /// Frees the memory. Call when no further step of this optimizer is perturbed.
  void release() noexcept { kept_.clear(), memory_.clear(); }
  void restore();
  void publish() { store_.publish_all(); }  // collective
  /// Drops the kept masters without restoring them: the current ones are undefined or have been
  /// replaced.
  void forget() noexcept { kept_.clear(); }

 private:
  struct KeptShard {
    Range* range;
    zero::Shard place;
  };
  Array& memory_of(const Range& range);

  ParameterStore& store_;
  std::vector<Array> memory_;  // [ranges] arrays of the masters' size and tier, reused by every step
  std::vector<KeptShard> kept_;
};

}  // namespace gannet
