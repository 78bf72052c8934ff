// An engine's construction: its phases, and the parts that they are made of; join.cpp uses some of those again.
#pragma once

#include <memory>
#include <optional>

#include "control/watch.h"
#include "engine/impl.h"

namespace gannet {

/// The phases in their order (initialize.cpp). The first two need no module: a pipeline builds that of its stage when the mesh is
/// known. An exception leaves the module as it was, up to take_over_module().
class Construction {
 public:
  Construction(EngineBase::Impl& impl, const EngineOptions& options);
  /// Plugins, accelerator, ranks, mesh and settings. From here on every rank is in "initialize" together.
  void open();
  /// What the config and the program say of optimizer, tiers, recomputation and groups.
  void read_rules();
  /// The module's parameters, in groups.
  void collect(std::shared_ptr<torch::nn::Module> module);
  /// What this rank alone can refuse: the optimizer, the schedule, another owner of the parameters, memory that does not suffice.
  void check();
  /// What the ranks can refuse together.
  void agree();
  /// The module's parameters move to the device and into the store; states, the reducer and recomputation are made for them.
  void take_over_module();
  /// What compares, reports and measures from the first step on.
  void start();

 private:
  EngineBase::Impl& impl_;
  const EngineOptions& options_;
  const Config config_;
  const config::Document& document_;
  std::optional<control::Watch::Call> call_;
};

/// Groups and the store's parameters from the module or from the groups that the program gave (collect.cpp).
void collect_parameters(EngineBase::Impl& impl, const EngineOptions& options);
/// Error(kArgument): two tensors hold one memory, and the flat buffers would take one of them away (shared_memory.cpp).
void refuse_shared_memory(const torch::nn::Module& module, const ParameterStore& store);
/// Will the run fit? Error(kOutOfMemory) with what would, before anything is allocated (check_fit.cpp).
void check_fit(const RankContext& context, const ParameterStore& store, const std::vector<Group>& groups);
/// To the device; parameters to the training dtype and into the store's memory; rank 0's values everywhere (collect.cpp).
void move_module(EngineBase::Impl& impl);
/// The moving average of the parameters, where the config has one (evaluation.cpp).
void start_average(EngineBase::Impl& impl);
/// Null: gradients are kept in the device's memory.
ParameterStore::GradientMemory gradient_memory(const EngineBase::Impl& impl);
/// Parameters that the program thawed or added are trained from now on (join.cpp).
void join_parameters(EngineBase::Impl& impl, const ParameterStore::Named& added);

}  // namespace gannet
