// Decides which layers an engine recomputes, among those that a model with the engine's parameters
// passes to run_layers.
//
//   auto mine = std::make_shared<RecomputationPlanner>(settings);
//   mine->own(parameters);                                       // `mine` groups the layers that have one of them
//   { const RecomputationPlanner::Forward here(mine); model->forward(x); }  // also groups layers that no engine owns
//
// With a memory limit, the choice is based on measurements of one micro-batch. Until then every
// layer is a region, so that the measurement itself needs no more memory than the smallest choice:
// the tensors that a layer would keep are counted when its region drops them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <gannet/layers.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "activation/cuts.h"

namespace gannet::activation {

struct RecomputeSettings {
  bool is_on = false;
  // The first of these that is set applies; if none is set, each layer is a region.
  std::optional<int64_t> memory_limit;        // bytes
  std::optional<int64_t> interval;            // layers
  std::optional<int64_t> number_checkpoints;  // regions
  std::string to_string() const;              // "interval 2"
};

class RecomputationPlanner : public std::enable_shared_from_this<RecomputationPlanner> {
 public:
  /// `wait` blocks until the device has finished all queued work; empty: the device has no queue.
  explicit RecomputationPlanner(RecomputeSettings settings, std::function<void()> wait = {});
  ~RecomputationPlanner();

  /// Makes this planner the owner of these parameters, even of those that another engine's planner
  /// owned before.
  void own(const std::vector<at::Tensor>& parameters);
  /// Returns the planner of these layers: the owner of their first parameter that has one, or else
  /// the planner of the engine that is running a forward on this thread; null if there is neither.
  static std::shared_ptr<RecomputationPlanner> of(const std::vector<Layer>& layers);

  void turn(bool on);
  bool is_on() const { return settings_.is_on; }
  /// Returns true once after turn() changed the setting. The ranks must then meet before backward,
  /// because recomputation gathers parameters that ranks without it do not request.
  bool take_turned() { return std::exchange(turned_, false); }
  const RecomputeSettings& settings() const { return settings_; }
  /// The groups of a list of layers in the current forward.
  struct Plan {
    std::vector<LayerGroup> groups;
    bool is_measured = false;  // groups are single layers, to be measured and passed to add()
  };
  Plan plan(const std::vector<Layer>& layers);
  void add(const std::vector<Layer>& layers, std::vector<MeasuredLayer> measured);
  std::unordered_set<const c10::StorageImpl*> parameter_storages() const;
  void wait() const;

  /// Returns the layer names of the lists that are measured but have no regions chosen yet, as text
  /// that is the same on every rank; "": none.
  std::string unchosen() const;
  /// Returns the layers of all lists, in the order of the lists' first runs.
  std::vector<MeasuredLayer> measured_layers() const;
  /// Returns the bytes and seconds of the layers of all lists. The ranks must agree on them before
  /// choose().
  std::vector<double> measured() const;
  /// Chooses the regions from the agreed values of measured(). Returns a description of the choice.
  std::string choose(const std::vector<double>& agreed);

  // While an object of this class lives, its engine runs a forward on this thread.
  class Forward {
   public:
    explicit Forward(std::shared_ptr<RecomputationPlanner> recomputing);
    ~Forward();
    Forward(const Forward&) = delete;

   private:
    const std::shared_ptr<RecomputationPlanner> recomputing_;
    const uint64_t regions_before_;
  };
  /// Whether no region has run in this engine's forwards. Returns true at most once.
  bool is_without_effect() { return regions_ == 0 && !std::exchange(has_said_so_, true); }

 private:
  struct LayerList {
    std::string names;
    std::vector<MeasuredLayer> layers;  // empty: not measured yet
    std::vector<LayerGroup> groups;     // empty: not chosen yet
  };
  LayerList* find(const std::string& names);

  RecomputeSettings settings_;
  bool turned_ = false;
  const std::function<void()> wait_;
  std::vector<at::Tensor> parameters_;
  mutable std::mutex mutex_;      // guards the lists: several threads of the program may run layers
  std::vector<LayerList> lists_;  // in the order of their first run
  std::atomic<uint64_t> regions_ = 0;
  bool has_said_so_ = false;
};

}  // namespace gannet::activation
