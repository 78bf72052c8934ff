// A simulated engine for an optimizer: what core/update does in a step, on plain memory, with N ranks in this process.
//
//   const Trained whole = train(subject, problem, uncut(problem, rules), {.steps = 200});
//   const Trained cut = train(subject, problem, sharded(problem, rules, 3, 512, 64), {.steps = 200});
//   require_same(cut, whole, problem);
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

// What a run leaves, by tensor, whatever its cut.
struct Trained {
  std::vector<Bytes> params, outs;         // [tensors]
  std::vector<Bytes> evaluated;            // [tensors] the weights to evaluate with, where the run asks for them
  std::vector<Bytes> perturbed;            // [tensors] where a next step would take its gradient, likewise
  std::vector<std::vector<Bytes>> states;  // [tensors][states], those per element, and squares
  // [ranks][groups][states], those that are no element's; empty for the others.
  std::vector<std::vector<std::vector<Bytes>>> own_states;
  std::vector<Optimizer::State> described;
};

// Of the random numbers that optimizers draw, where a check does not choose it.
inline constexpr uint64_t kRunSeed = 11;

struct RunOptions {
  int64_t steps = 200;
  int64_t applied = 0;            // updates before the first one
  const Trained* from = nullptr;  // it continues from there
  // The hyperparameters of a step, counted from 1: [hyper] are those of the params.
  std::function<void(int64_t step, std::vector<double>& hyper)> schedule = {};
  double grad_scale = 0.5;
  uint64_t run_seed = kRunSeed;
  // What may not be written while a function runs that may not write it.
  bool guards_gradients = false, guards_own_states = false, guards_sums = false, guards_inputs = false;
  bool is_tight = false;        // buffers end where their memory ends, and canaries are looked at
  bool moves_buffers = false;   // they are at other addresses in every call, and gone after it
  bool may_fail = false;        // a failed update ends the run, if it comes with a sentence
  bool uses_reference = false;  // subject.reference in place of the plugin
  bool perturbs = false;     // in the end it asks where a next step takes its gradient; what that comes from may not be written
  uint64_t second_seed = 3;  // of the second gradients
  // Of optimizers that take lists: pieces in each, 0: calls for single pieces. And the last piece comes first.
  size_t list_length = 0;
  bool reverses_lists = false;
  // Of those that read device numbers: from this many updates on they say that the step is skipped; and begin_step and end_step
  // are given other numbers than update() is.
  int64_t skipped_from = std::numeric_limits<int64_t>::max();
  bool alters_edges = false;
  bool evaluates = false;  // in the end it asks for the weights to evaluate with; what they come from may not be written
};

Trained train(const Subject& subject, const Problem& problem, const Cut& cut, const RunOptions& options);

// What the plugin says of itself, for such a problem.
struct Described {
  CutRules rules;
  bool is_elementwise = false, has_sums = false, has_own_states = false, has_evaluation_weights = false,
       owns_grad_reduction = false, uses_seed = false, perturbs = false, takes_second_gradients = false, takes_lists = false,
       takes_device_numbers = false;
  std::vector<Optimizer::State> states;
  std::vector<Optimizer::Sum> sums;
  std::vector<std::string> hyper_names;
  std::vector<uint32_t> hyper_roles;
  std::vector<double> hyper;
};
Described describe(const Subject& subject, const Problem& problem);
inline CutRules rules_of(const Subject& subject, const Problem& problem) { return describe(subject, problem).rules; }

// The tensors of a group as the host tells them.
Optimizer::Context context_of(const Problem& problem, uint32_t group, uint32_t rank, uint32_t ranks);

}  // namespace gannet::kit
