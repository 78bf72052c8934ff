// The parts of an engine, wired in initialize.cpp. step.cpp, backward.h and report.h use them.
#pragma once

#include <gannet/checkpoint.h>
#include <gannet/initialize.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/activations.h"
#include "engine/agreement.h"
#include "engine/calls.h"
#include "engine/checkpoint/saving.h"
#include "engine/group_rules.h"
#include "engine/guards.h"
#include "engine/module_audit.h"
#include "engine/newcomers.h"
#include "engine/ownership.h"
#include "engine/passes.h"
#include "engine/profiling.h"
#include "engine/program_state.h"
#include "engine/progress.h"
#include "engine/step_reporter.h"
#include "grads/host_gradients.h"
#include "grads/reducer.h"
#include "grads/skip_policy.h"
#include "params/store.h"
#include "update/schedule.h"
#include "update/torch_optimizer.h"
#include "update/updater.h"
#include "update/user_optimizer.h"

namespace gannet {

struct EngineBase::Impl : RankContext {
  std::shared_ptr<void> self{this, [](void*) {}};  // handles refer to it weakly
  std::shared_ptr<torch::nn::Module> module;
  std::string splits;                // the parameter splits that the ranks last agreed on; "": none
  std::unique_ptr<class Ties> ties;  // parameters that other stages of the pipeline hold as well; null: none
  Calls calls;
  Progress progress;
  std::unique_ptr<HostGradients> host_gradients;  // null: gradients stay in the device's memory
  GroupRules group_rules;
  std::vector<Group> groups;
  ParameterStore store{*this, [this] { return progress.global_steps + 1; }};
  std::unique_ptr<Reducer> reducer;  // null: the engine does not train
  Updater updater{*this, store, groups};
  std::unique_ptr<TorchOptimizer> torch_optimizer;  // the program's own, from which the groups' optimizers are made; null: none
  std::unique_ptr<UserOptimizer> user_optimizer;    // any other program optimizer; null: none
  Schedule schedule{groups};
  LossScaler scaler = LossScaler::fixed(1.0);
  SkipPolicy skip_policy;
  Activations activations;
  Passes passes;
  DriverState driven;
  Guards guards;
  std::unique_ptr<Ownership> ownership;  // null: the engine does not train
  std::unique_ptr<ModuleAudit> module_audit;
  Newcomers newcomers;
  std::unique_ptr<Agreement> agreement;
  std::unique_ptr<StepReporter> reporter;  // null: no monitor, and no optimizer that uses the loss
  bool uses_loss = false;                  // an optimizer of this rank or of another pipeline stage does
  std::unique_ptr<Profiling> profiling;    // profiles the current or a later step; null: none
  ReportedTotals reported;
  std::vector<ProgramState> program_states;
  SaveState saving;  // the last member: destroyed first; its destructor waits for the write
  Impl();
  ~Impl();
  std::string optimizer_name() const;     // the plugin's, "torch::optim::Adam", "user" for the program's other classes, "none"
  int64_t micro_batches_of_step() const;  // fewer than accumulation_steps if the epoch ends with the step
  bool is_boundary() const { return progress.is_boundary(micro_batches_of_step()); }
  void audit();                              // checks what the program did to parameters and optimizer; every rank calls it
  void take_cleared_gradients();             // called before gradients are used: drops those that the program cleared
  control::Facts& agreed(bool is_boundary);  // the facts that all ranks must agree on in this call
  void compare_fingerprints(const char* where);
  void restart_step() noexcept;  // after an error: drops gradients; the next micro-batch is the first of its step
  void start_next_step();        // starts the next step with the batch size that the program requested
  void add_state(ProgramState state);
  checkpoint::Ranks checkpoint_ranks() const;
  CheckpointWriter& writer();
  checkpoint::Content content(const SaveOptions& options, const checkpoint::Neighbours& neighbours) const;
  Dict document(const SaveOptions& options) const;
};

/// Throws Error(kArgument) if a new value of a hyperparameter is not finite, or is outside the
/// optimizer's limits.
void check_hyperparameter(const Group& group, const std::string& name, double value);

}  // namespace gannet
