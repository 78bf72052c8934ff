// The phases of an engine's construction and the functions that they call; join.cpp reuses some of
// these.
#pragma once

#include <memory>
#include <optional>

#include "control/watch.h"
#include "engine/impl.h"

namespace gannet {

/// The phases, in the order in which they are called (initialize.cpp). The first two need no
/// module: a pipeline builds its stage's module once the mesh is known. Up to take_over_module(),
/// an exception leaves the module unchanged.
class Construction {
 public:
  Construction(EngineBase::Impl& impl, const EngineOptions& options);
  /// Opens plugins, accelerator, ranks, mesh and settings. From here on every rank is in the call
  /// "initialize".
  void open();
  /// Reads what the config and the program specify for the optimizer, recomputation and the groups,
  /// and opens the tiers.
  void read_rules();
  /// Collects the module's parameters into groups.
  void collect(std::shared_ptr<torch::nn::Module> module);
  /// Creates the optimizers and the scheduler, and runs the checks that need no other rank: tensors
  /// that share memory, another owner of the parameters, and whether the run fits.
  void check();
  /// Runs the checks that need all ranks.
  void agree();
  /// Moves the module's parameters to the device and into the store; creates states, the reducer
  /// and recomputation for them.
  void take_over_module();
  /// Records the baselines for later steps' checks, and starts reporting and the profiler.
  void start();

 private:
  EngineBase::Impl& impl_;
  const EngineOptions& options_;
  const Config config_;
  const config::Document& document_;
  std::optional<control::Watch::Call> call_;
};

/// Collects groups and the store's parameters from the module, or from the groups that the program
/// passed (collect.cpp).
void collect_parameters(EngineBase::Impl& impl, const EngineOptions& options);
/// Throws Error(kArgument) if two tensors share memory, since the flat buffers would separate them
/// (shared_memory.cpp).
void refuse_shared_memory(const torch::nn::Module& module, const ParameterStore& store);
/// If the run does not fit, throws Error(kOutOfMemory) before anything is allocated, with advice on
/// what would fit; does nothing if gannet.check_memory is false (check_fit.cpp).
void check_fit(const RankContext& context, const ParameterStore& store, const std::vector<Group>& groups);
/// Moves the module to the device, and its parameters, in the training dtype, into the store's
/// memory. Every rank gets rank 0's values (collect.cpp).
void move_module(EngineBase::Impl& impl);
/// Starts the moving average of the parameters if the config has one (evaluation.cpp).
void start_average(EngineBase::Impl& impl);
/// Returns null if gradients are kept in the device's memory.
ParameterStore::GradientMemory gradient_memory(const EngineBase::Impl& impl);
/// From now on, trains parameters that the program unfroze or added (join.cpp).
void join_parameters(EngineBase::Impl& impl, const ParameterStore::NamedParameters& added);

}  // namespace gannet
