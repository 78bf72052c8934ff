// Checks that all ranks agree: at construction on the config, the model and the plugins; in every
// step on the facts that the watch compares in addition to the call itself (control/facts.h).
//
//   Agreement agreement(world.next_engine_in(world_group->name()), groups);
//   watch(call, agreement.facts(step, store, reducer, groups));    // Error(kMismatch) names the first fact that differs
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "activation/recomputing.h"
#include "control/facts.h"
#include "engine/module_audit.h"
#include "engine/progress.h"
#include "grads/reducer.h"
#include "params/rank_context.h"
#include "params/store.h"
#include "update/schedule.h"

namespace torch::nn {
class Module;
}

namespace gannet {

class Ties;

class Agreement {
 public:
  /// `number_in_group`: this engine's number among the engines of the same ranks.
  Agreement(uint32_t number_in_group, const std::vector<Group>& groups);

  /// The facts of the current step that do not come from the store, the reducer or the groups.
  struct StepFacts {
    const Progress& progress;
    const config::Settings& settings;
    bool is_boundary;
    double loss_scale;
    uint64_t written_hash;                        // hash of the values that the program wrote into parameters
    const std::function<std::string()>& written;  // names those parameters
    const Schedule& schedule;
    const activation::RecomputationPlanner& recomputing;
  };
  control::Facts& facts(const StepFacts& step, const ParameterStore& store, const Reducer& reducer,
                        const std::vector<Group>& groups);

 private:
  control::Facts facts_;
  size_t micro_batch_, accumulation_, boundary_, loss_scale_, clipping_, errors_, position_, metric_, frozen_, written_, cleared_,
      late_, recomputes_, chooses_;         // indices of the facts
  std::vector<std::vector<size_t>> hyper_;  // [groups][hyperparameters]
};

/// Checks everything that must be the same on every rank for sums over ranks to be meaningful. Throws Error(kMismatch) before
/// anything is changed if something differs, and Error(kConfig) if pipeline stages use one name for different parameters.
void agree_on_model(const RankContext& context, const ParameterStore& store);
void agree_on_plugins(const RankContext& context);
/// Checks what the optimizers and the scheduler declare (states, sums, capabilities): the memory,
/// the collectives and the checkpoint of all ranks depend on it. Error(kPluginFault) names the
/// plugin, since the config and the files are already known to be the same.
void agree_on_descriptions(const RankContext& context, const std::vector<Group>& groups, const Schedule& schedule);
/// `text`: the class of the program's own optimizer, its switches and the states that it keeps.
void agree_on_program_optimizer(const RankContext& context, const std::string& text);
/// Returns the declared splits of parameters along the tensor axis (splits.cpp) as text; "" if
/// there are none.
std::string declared_splits(const torch::nn::Module& module);
/// Throws Error(kMismatch) or Error(kConfig) unless every rank declares splits of the same parameters
/// and their boxes cover each tensor exactly once. Returns this rank's splits.
std::string agree_on_splits(const RankContext& context, const torch::nn::Module& module);

/// Checks that replicated values are the same on all ranks, and that ranks along the tensor axis
/// have the same shards of replicated parameters. Exchanges a hash of each parameter and of each
/// optimizer state that belongs to a whole group. Every rank calls it. Returns "" or a message that
/// names the first parameter that differs; `where` and `step` are included in the message. `ties`:
/// parameters that stages share are also compared along the pipe axis; may be null. `frozen`: the
/// frozen parameters; those not written since the last comparison are hashed only if others differ.
/// `may_differ`: whether ranks may differ in a range after a local step; such ranges are left out.
/// It must return the same on every rank.
std::string differing_parameters(RankContext& context, const ParameterStore& store, const std::vector<Group>& groups,
                                 const std::vector<ModuleAudit::FrozenParameter>& frozen, const Ties* ties, const char* where,
                                 int64_t step, const std::function<bool(const Range&)>& may_differ);

}  // namespace gannet
