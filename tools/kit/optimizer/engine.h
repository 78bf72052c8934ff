// A simulated engine for an optimizer: the steps of core/update on plain memory, with N ranks in
// this process.
//
//   const TrainingResult whole = train(subject, problem, uncut(problem, rules), {.steps = 200});
//   const TrainingResult cut = train(subject, problem, sharded(problem, rules, 3, 512, 64), {.steps = 200});
//   require_same(cut, whole, problem, "3 ranks against one");
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "interfaces/optimizer.h"
#include "kit/check.h"
#include "kit/optimizer/cut.h"
#include "kit/optimizer/problem.h"

namespace gannet::kit {

using Bytes = std::vector<char>;

// The results of a run, by tensor, independent of its cut.
struct TrainingResult {
  std::vector<Bytes> params, outs;         // [tensors]
  std::vector<Bytes> evaluated;            // [tensors] the weights to evaluate with, if the run asks for them
  std::vector<Bytes> perturbed;            // [tensors] where a next step would take its gradient, if the run asks for it
  std::vector<std::vector<Bytes>> states;  // [tensors][states] the states per element, and the squares
  // [ranks][groups][states], the states that are not per element; empty for the others.
  std::vector<std::vector<std::vector<Bytes>>> group_states;
  std::vector<Optimizer::State> described;
  bool has_failed = false;  // a call failed, and the run ended there (RunOptions::may_fail)
};

// Seed of the random numbers that optimizers draw, unless a check chooses another.
inline constexpr uint64_t kRunSeed = 11;

struct RunOptions {
  int64_t steps = 200;
  int64_t applied = 0;                   // updates before the first one
  const TrainingResult* from = nullptr;  // the results from which the run continues
  // Sets the hyperparameters of a step, counted from 1; `hyper` initially holds those of the params.
  std::function<void(int64_t step, std::vector<double>& hyper)> schedule = {};
  double grad_scale = 0.5;
  // Of each step: gradients are multiplied by this power of two, and grad_scale is divided by it.
  std::function<int(int64_t step)> scale_power = {};
  uint64_t run_seed = kRunSeed;
  // Write-protects inputs while a function runs that must not write them.
  bool guards_gradients = false, guards_own_states = false, guards_sums = false, guards_inputs = false;
  bool is_tight = false;        // buffers end where their memory ends, and canaries are checked
  bool moves_buffers = false;   // buffers move to other addresses for every update; accesses to the old ones fault
  bool may_fail = false;        // a failed update ends the run, if it has an error sentence
  bool uses_reference = false;  // runs subject.reference in place of the plugin
  bool perturbs = false;        // at the end, asks where a next step takes its gradient, with write-protected inputs
  uint64_t second_seed = 3;     // the seed of the second gradients
  // For optimizers that take lists: the number of pieces per list; 0: one call per piece.
  // `reverses_lists`: the last piece comes first.
  size_t list_length = 0;
  bool reverses_lists = false;
  // For optimizers that read device numbers. `skipped_from`: from this many updates on, the numbers
  // say that the step is skipped. `alters_edges`: begin_step and end_step get other numbers than
  // update().
  int64_t skipped_from = std::numeric_limits<int64_t>::max();
  bool alters_edges = false;
  // Asks for each part of a sum twice: beginning at nothing, and at a number that must be combined.
  bool combines_sums = false;
  bool evaluates = false;  // at the end, asks for the weights to evaluate with, with write-protected inputs
};

TrainingResult train(const Subject& subject, const Problem& problem, const ProblemCut& cut, const RunOptions& options);

// The plugin's description of itself, for a given problem.
struct OptimizerTraits {
  CutRules rules;
  uint64_t capabilities = 0;
  bool is_elementwise = false, has_sums = false, has_group_states = false, has_evaluation_weights = false,
       owns_grad_reduction = false, uses_seed = false, perturbs = false, takes_second_gradients = false, takes_lists = false,
       takes_device_numbers = false;
  std::vector<Optimizer::State> states;
  std::vector<Optimizer::Sum> sums;
  std::vector<std::string> hyper_names;
  std::vector<uint32_t> hyper_roles;
  std::vector<double> hyper;
};
OptimizerTraits describe(const Subject& subject, const Problem& problem);
inline CutRules rules_of(const Subject& subject, const Problem& problem) { return describe(subject, problem).rules; }

// The tensors of a group, as the host describes them.
Optimizer::Context context_of(const Problem& problem, uint32_t group, uint32_t rank, uint32_t ranks);

}  // namespace gannet::kit
