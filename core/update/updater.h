// The update phase of a step: computes new masters, states and parameters from gradients, in any
// tier.
//
//   Updater updater(context, store, groups);
//   updater.update({factor, applied_steps, reducer});    // sends finished shards while others are updated
//   store.publish();                                     // waits until every rank has the new parameters
//
// A range is updated piece by piece: a shard of its arrays or, on a tier without addresses, a page
// of them while it is in memory. Meanwhile, gradients and parameters in separate device memory are
// copied to the host and back (host_update.h). The calling thread runs the optimizer; on a device,
// work is queued on the thread's current stream. range_pass.h has the pass over one range.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "grads/reducer.h"
#include "interfaces/host.h"
#include "params/range.h"
#include "params/rank_context.h"
#include "params/store.h"
#include "update/average.h"
#include "update/evaluation.h"
#include "update/host_update.h"
#include "update/perturbation.h"
#include "update/range_pass.h"
#include "update/second_gradient.h"
#include "update/sums.h"
#include "update/workspace.h"

namespace gannet {

/// Whether this update skips the parameter: it is frozen by the program and got no gradient in this
/// step, or its gradient was cleared. A skipped parameter keeps its values and does not count the
/// update.
inline bool is_skipped(const Range& range, size_t parameter, const Reducer& reducer) {
  return reducer.is_cleared(range, parameter) ||
         (!range.parameters[parameter].tensor.requires_grad() && !reducer.has_come(range, parameter));
}

class Updater {
 public:
  /// `groups` belong to the engine.
  Updater(RankContext& context, ParameterStore& store, std::vector<Group>& groups)
      : context_(context),
        store_(store),
        groups_(groups),
        average_(store),
        evaluation_(context, store, groups),
        perturbation_(store),
        second_gradient_(store, groups) {}

  /// `on`: gradients are already in host memory (HostGradients) and need no copy.
  void set_gradients_on_host(bool on) { gradients_on_host_ = on; }
  struct UpdateStep {
    double grad_scale;      // factor for gradients
    int64_t applied_steps;  // updates before this one
    const Reducer& reducer;
    double loss = std::numeric_limits<double>::quiet_NaN();  // for optimizers that use it
    Host::ShowMetric show_metric = {};                       // empty: metrics are dropped
  };
  /// Updates all ranges and starts to send the shards that other ranks need.
  void update(const UpdateStep& step);
  /// Moves the parameters of groups with perturbing optimizers to the point where the second
  /// gradient is computed, and starts to send them.
  void perturb(const UpdateStep& step);
  Perturbation& perturbation() { return perturbation_; }
  SecondGradient& second_gradient() { return second_gradient_; }
  const SecondGradient& second_gradient() const { return second_gradient_; }
  /// The seed of the run, for optimizers that draw random numbers. A load restores it.
  int64_t run_seed = 0;
  /// The moving average, which every step updates in its pass over the pieces.
  Average& average() { return average_; }
  const Average& average() const { return average_; }
  EvaluationWeights& evaluation() { return evaluation_; }
  const EvaluationWeights& evaluation() const { return evaluation_; }
  /// Call after an exception: ensures that nothing is in flight.
  void abandon() noexcept { host_updates_.clear(); }

 private:
  void step_groups(void (Optimizer::*function)(gannet_step_args), const UpdateStep& step, std::vector<Sums>& sums);
  // A pass over the pieces of a range. It computes the sums of `round` or, without a round, updates
  // or perturbs the parameters.
  struct PiecePass {
    gannet_pass pass = GANNET_PASS_UPDATE;
    std::optional<uint32_t> round = {};
  };
  void add_up(std::vector<Sums>& sums, gannet_pass pass, const UpdateStep& step);
  void update_range(Range& range, const UpdateStep& step, Sums& sums, PiecePass work);
  void update_pieces(RangePass& pass, const Group& group, int64_t applied_steps);
  void add_sums(RangePass& pass, Optimizer& optimizer, Sums& sums, uint32_t round);
  void perturb_piece(Optimizer& optimizer, Range& range, const Piece& piece, gannet_update_args args);
  HostUpdate& host_update(const Range& range);
  int64_t largest_page(const Range& range) const;
  uint64_t seed_of(const Optimizer& optimizer, int64_t applied_steps) const;
  static double loss_of(const Optimizer& optimizer, const UpdateStep& step);

  RankContext& context_;
  ParameterStore& store_;
  std::vector<Group>& groups_;
  Average average_;
  EvaluationWeights evaluation_;
  Perturbation perturbation_;
  SecondGradient second_gradient_;
  bool gradients_on_host_ = false;
  std::vector<std::unique_ptr<HostUpdate>> host_updates_;  // [ranges], made at first use
  PassMemory memory_;
  Workspace step_workspace_;  // for begin_step and end_step, in host memory
};

}  // namespace gannet
