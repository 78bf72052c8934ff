#include "kit/optimizer/list_checks.h"

#include <algorithm>

#include "base/format.h"
#include "kit/optimizer/compare.h"
#include "kit/optimizer/engine.h"
#include "kit/optimizer/types.h"

namespace gannet::kit {
namespace {

// Relative, in the 2-norm; for row and column sums, which a list call may add up in a different
// order.
constexpr double kCloseInLines = 1e-6;

// Two tensors joined later, so that a list has pieces with different numbers of updates.
Problem with_lags(Subject& subject) {
  Problem problem = many_shapes(usual_types(subject));
  for (const size_t t : {size_t{3}, size_t{6}}) problem.tensors[t].joins = 4;
  return problem;
}

bool has_sums_of_lines(const OptimizerTraits& described) {
  return std::any_of(described.sums.begin(), described.sums.end(), [](const auto& sum) { return sum.is_of_lines(); });
}

}  // namespace

void lists(Subject& subject) {
  const Problem problem = with_lags(subject);
  const OptimizerTraits described = describe(subject, problem);
  if (!described.takes_lists) throw SkippedCheck("it does not claim GANNET_OPTIMIZER_TAKES_LISTS");
  // Inputs are write-protected during a call, and every array ends at an inaccessible page.
  const auto options = [](size_t length, bool reverses) {
    RunOptions run{.steps = 12};
    run.guards_gradients = run.guards_own_states = run.guards_sums = run.guards_inputs = run.is_tight = length > 0;
    run.moves_buffers = length == 2;
    run.list_length = length;
    run.reverses_lists = reverses;
    return run;
  };
  for (const ProblemCut& cut : {by_tensor(problem), sharded(problem, described.rules, 2, 256, 64)}) {
    const TrainingResult single = train(subject, problem, cut, options(0, false));
    require_finite(single, problem);
    for (const auto& [length, reverses] :
         {std::pair<size_t, bool>{1, false}, {2, false}, {3, true}, {1024, false}, {1024, true}}) {
      const TrainingResult listed = train(subject, problem, cut, options(length, reverses));
      const std::string what =
          formatted("{}, in lists of {}{}, against single calls", cut.name, length, reverses ? ", the last one first" : "");
      if (has_sums_of_lines(described))
        require_close(listed, single, problem, kCloseInLines, what);
      else
        require_same(listed, single, problem, what);
    }
  }
  const Problem many = many_tensors(problem.types);
  const ProblemCut cut = by_tensor(many);
  const TrainingResult single = train(subject, many, cut, {.steps = 3});
  const TrainingResult listed = train(subject, many, cut, {.steps = 3, .list_length = many.tensors.size()});
  const std::string what = formatted("a list of {} tensors, against single calls", many.tensors.size());
  if (has_sums_of_lines(described))
    require_close(listed, single, many, kCloseInLines, what);
  else
    require_same(listed, single, many, what);
}

void device_numbers(Subject& subject) {
  const Problem problem = with_lags(subject);
  const OptimizerTraits described = describe(subject, problem);
  if (!described.takes_device_numbers) throw SkippedCheck("it does not claim GANNET_OPTIMIZER_TAKES_DEVICE_NUMBERS");
  const ProblemCut cut = uncut(problem, described.rules);
  for (const size_t length : {size_t{0}, size_t{1024}}) {
    if (length > 0 && !described.takes_lists) break;
    const std::string calls = length > 0 ? "update_many" : "update";
    const RunOptions half{.steps = 6, .list_length = length};
    const TrainingResult before = train(subject, problem, cut, half);
    require_finite(before, problem);
    TrainingResult skipped = train(subject, problem, cut, {.steps = 10, .list_length = length, .skipped_from = 6});
    skipped.group_states = before.group_states;  // from end_step, which is not skipped
    require_same(skipped, before, problem, formatted("{} with a skip of 1 in steps 7 to 10, against 6 steps", calls));
    if (described.has_group_states) continue;  // they are computed from begin_step's numbers, so results may depend on those
    require_same(train(subject, problem, cut, {.steps = 6, .list_length = length, .alters_edges = true}), before, problem,
                 formatted("{} beside other numbers in begin_step and end_step", calls));
  }
}

}  // namespace gannet::kit
