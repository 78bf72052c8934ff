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

// A number that the plugin has shown with gannet_host::metric.
struct ShownMetric {
  int64_t step = 0;
  uint32_t group = 0;
  std::string name;
  double value = 0;
  bool operator==(const ShownMetric&) const = default;
};

// The results of a run, per tensor, independent of its cut.
struct TrainingResult {
  std::vector<Bytes> params, outs;         // [tensors]
  std::vector<Bytes> evaluated;            // [tensors] the evaluation weights, if the run evaluates
  std::vector<Bytes> perturbed;            // [tensors] the perturbed parameters, if it perturbs
  std::vector<std::vector<Bytes>> states;  // [tensors][states] per-element states, and squares
  // [ranks][groups][states] the states that are not per element; the others are empty.
  std::vector<std::vector<std::vector<Bytes>>> group_states;
  std::vector<Optimizer::State> described;
  std::vector<ShownMetric> metrics;  // of rank 0, in the order of its calls
  bool has_failed = false;           // a call failed, and the run ended there (RunOptions::may_fail)
};

// Seed of the optimizers' random numbers, unless a check chooses another.
inline constexpr uint64_t kRunSeed = 11;

// The loss of a step, counted from 1: it falls from about 2.5 towards 0.5, with some noise.
double plausible_loss(int64_t step);
// The length of the checks' longest runs, so that any decay over a run takes effect in them.
inline constexpr uint64_t kPlannedSteps = 200;
// A planned length of the run, for RunOptions::total_steps: the same in every step; 0: unknown.
inline std::function<uint64_t(int64_t step)> run_length(uint64_t total_steps) {
  return [total_steps](int64_t) { return total_steps; };
}

struct RunOptions {
  int64_t steps = 200;
  int64_t applied = 0;                   // updates before this run
  const TrainingResult* from = nullptr;  // the results from which the run continues
  // Called at the start of each step, counted from 1. No metrics are recorded then, so that the run itself gathers no memory.
  std::function<void(int64_t step)> observe = {};
  // Sets a group's hyperparameters of a step; `hyper` initially holds those of the params.
  std::function<void(int64_t step, uint32_t group, std::vector<double>& hyper)> schedule = {};
  double grad_scale = 0.5;
  // Per step: an exponent n; gradients are multiplied by 2^n, and grad_scale is divided by it.
  std::function<int(int64_t step)> scale_power = {};
  uint64_t run_seed = kRunSeed;
  // Per step, counted from 1: the loss, passed to optimizers with USES_LOSS, and the planned length
  // of the run.
  std::function<double(int64_t step)> loss = plausible_loss;
  std::function<uint64_t(int64_t step)> total_steps = run_length(kPlannedSteps);
  // Write-protects inputs during the calls that must not write to them.
  bool guards_gradients = false, guards_own_states = false, guards_sums = false, guards_inputs = false;
  bool is_tight = false;        // buffers end at inaccessible pages, and canaries are checked
  bool moves_buffers = false;   // buffers move to other addresses for every update; accesses to the old ones fault
  bool may_fail = false;        // a failed update ends the run, if it has an error message
  bool uses_reference = false;  // runs subject.reference instead of the plugin
  bool perturbs = false;        // at the end, calls perturb, with write-protected inputs
  uint64_t second_seed = 3;     // the seed of the second gradients
  // For optimizers that take lists: the number of pieces per list; 0: one call per piece.
  // `reverses_lists`: the last piece comes first.
  size_t list_length = 0;
  bool reverses_lists = false;
  // For optimizers that read device numbers. `skipped_from`: after this many updates, the numbers
  // mark steps as skipped. `alters_edges`: begin_step and end_step get other numbers than
  // update().
  int64_t skipped_from = std::numeric_limits<int64_t>::max();
  bool alters_edges = false;
  // Requests each partial sum twice: starting from the identity, and from a value to combine with.
  bool combines_sums = false;
  bool evaluates = false;  // at the end, calls evaluate, with write-protected inputs
};

TrainingResult train(const Subject& subject, const Problem& problem, const ProblemCut& cut, const RunOptions& options);

// The plugin's description of itself, for a given problem.
struct OptimizerTraits {
  CutRules rules;
  uint64_t capabilities = 0;
  bool is_elementwise = false, has_sums = false, has_group_states = false, has_evaluation_weights = false,
       owns_grad_reduction = false, uses_seed = false, perturbs = false, takes_second_gradients = false, takes_lists = false,
       takes_device_numbers = false, uses_loss = false;
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
