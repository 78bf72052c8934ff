// What all ranks must agree on: at construction the config, the model and the plugins; in every step what the watch compares
// beside the call itself (control/facts.h).
//
//   Agreement agreement(next_number_in(world_group->name()), groups);
//   watch(call, agreement.facts(step, store, reducer, groups));    // Error(kMismatch) names the first number that differs
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
  /// `number_in_group`: of the engines of these ranks, which count together.
  Agreement(uint32_t number_in_group, const std::vector<Group>& groups);

  /// Of the step at hand, beside what the store, the reducer and the groups say themselves.
  struct Step {
    const Progress& progress;
    const config::Settings& settings;
    bool is_boundary;
    double loss_scale;
    uint64_t written_hash;                        // of the values that the program wrote into parameters
    const std::function<std::string()>& written;  // which those are
    const Schedule& schedule;
    const activation::Recomputing& recomputing;
  };
  control::Facts& facts(const Step& step, const ParameterStore& store, const Reducer& reducer, const std::vector<Group>& groups);

 private:
  control::Facts facts_;
  size_t micro_batch_, accumulation_, boundary_, loss_scale_, clipping_, errors_, position_, metric_, frozen_, written_, cleared_,
      late_, recomputes_, chooses_;         // rows
  std::vector<std::vector<size_t>> hyper_;  // [groups][hyperparameters]
};

/// Of the engines on the ranks of a group: 0, 1, 2 ...
uint32_t next_number_in(const std::string& group);
/// What must be the same on every rank for their sums to mean anything. Error(kMismatch). Before anything is changed.
void agree_on_model(const RankContext& context, const ParameterStore& store);
void agree_on_plugins(const RankContext& context);
/// What the optimizers and the scheduler say that they need (states, sums, capabilities): the memory, the collectives and the
/// checkpoint of all ranks follow from it. Error(kPluginFault) names the plugin: the config and the files are the same here.
void agree_on_descriptions(const RankContext& context, const std::vector<Group>& groups, const Schedule& schedule);
/// `text`: the class of the program's own optimizer and what it keeps.
void agree_on_program_optimizer(const RankContext& context, const std::string& text);
/// Splits of parameters along the axis tensor (splits.cpp), as text: "" where none is declared.
std::string declared_splits(const torch::nn::Module& module);
/// Every rank declares those of the same parameters, and their boxes make up each tensor once. Returns this rank's.
std::string agree_on_splits(const RankContext& context, const torch::nn::Module& module);

/// Whether what every rank has whole is the same on all of them, and along the tensor axis what each has: a hash of each
/// parameter, and of each state that an optimizer has for a whole group, is exchanged. Every rank calls it. "" or the sentence
/// that names the first parameter that differs; `where` and `step` complete it. `ties`: parameters that stages hold together are
/// compared along pipe, too; null: none. `frozen`: those that were written since they were compared last cost their bytes.
/// `may_differ`: a range after a local step, which is left out; the same on every rank.
std::string differing_parameters(RankContext& context, const ParameterStore& store, const std::vector<Group>& groups,
                                 const std::vector<ModuleAudit::Frozen>& frozen, const Ties* ties, const char* where,
                                 int64_t step, const std::function<bool(const Range&)>& may_differ);

}  // namespace gannet
