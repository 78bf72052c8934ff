#include "kit/optimizer/step_checks.h"

#include <cmath>
#include <limits>

#include "base/format.h"
#include "kit/optimizer/compare.h"
#include "kit/optimizer/engine.h"
#include "kit/optimizer/types.h"
#include "kit/place.h"
#include "kit/relay.h"
#include "kit/relay_fault.h"

namespace gannet::kit {

// Losses differ from the second step on, to detect a rule that keeps the first one. Much smaller
// and much larger losses are tried: a rule may clamp values computed from them on one side.
void losses(Subject& subject) {
  const Problem problem = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  if (!described.uses_loss) throw SkippedCheck("it does not claim GANNET_OPTIMIZER_USES_LOSS");
  const ProblemCut cut = uncut(problem, described.rules);
  const auto run = [&](int64_t steps, double factor) {
    return train(subject, problem, cut, {.steps = steps, .loss = [factor](int64_t step) {
                                           return step > 1 ? factor * plausible_loss(step) : plausible_loss(step);
                                         }});
  };
  // A rule may use the loss only after a warm-up, so a longer run is tried too.
  const auto ignores_it = [&](int64_t steps) {
    const TrainingResult usual = run(steps, 1);
    require_finite(usual, problem);
    const auto is_usual = [&](const TrainingResult& found) {
      return found.params == usual.params && found.states == usual.states && found.group_states == usual.group_states;
    };
    return is_usual(run(steps, 1e-3)) && is_usual(run(steps, 1e3));
  };
  if (ignores_it(20) && ignores_it(200))
    throw CheckFailure("runs with different losses have the same parameters and states",
                       "200 steps, whose losses from the second on are a thousandth, or a thousand times, of the others'");
  const auto nobody_knows = [](int64_t) { return std::numeric_limits<double>::quiet_NaN(); };
  const TrainingResult without = train(subject, problem, cut, {.steps = 5, .loss = nobody_knows, .may_fail = true});
  set_config("5 steps whose losses are NaN");
  if (!without.has_failed) require_finite(without, problem);
}

void run_lengths(Subject& subject) {
  const Problem problem = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  const ProblemCut cut = uncut(problem, described.rules);
  const auto text_of_run = [](uint64_t total) {
    return total > 0 ? formatted("a run of {} steps", total) : std::string("a run of unknown length");
  };
  for (const uint64_t total : {uint64_t{0}, uint64_t{1}, uint64_t{7}, uint64_t{20}, uint64_t{1} << 40}) {
    const TrainingResult trained = train(subject, problem, cut, {.steps = 20, .total_steps = run_length(total)});
    set_config(formatted("20 steps of {}", text_of_run(total)));
    require_finite(trained, problem);
  }
  // A run that resumes with another planned length has new objects; its results must not depend on that.
  for (const auto& [before, after] : {std::pair<uint64_t, uint64_t>{20, 1000}, {0, 20}, {20, 0}}) {
    const TrainingResult begun = train(subject, problem, cut, {.steps = 5, .total_steps = run_length(before)});
    const TrainingResult rest =
        train(subject, problem, cut, {.steps = 10, .applied = 5, .from = &begun, .total_steps = run_length(after)});
    const auto changing = [before = before, after = after](int64_t step) { return step > 5 ? after : before; };
    require_same(
        train(subject, problem, cut, {.steps = 15, .total_steps = changing}), rest, problem,
        formatted("{} becomes {} after step 5, against a new object that begins there", text_of_run(before), text_of_run(after)));
  }
}

// Also calls evaluate and perturb, from which the host refuses metrics.
void shown_metrics(Subject& subject) {
  const Problem problem = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  const ProblemCut cut = uncut(problem, described.rules);
  const RelayScope scope({.watches_metrics = true});
  for (const size_t length : {size_t{0}, size_t{4}}) {
    if (length > 0 && !described.takes_lists) break;
    const RunOptions options{.steps = 12,
                             .perturbs = described.perturbs,
                             .list_length = length,
                             .evaluates = described.has_evaluation_weights && !described.owns_grad_reduction};
    const std::vector<ShownMetric> shown = train(subject, problem, cut, options).metrics;
    throw_kept_fault();
    if (shown.empty()) throw SkippedCheck("it shows no metrics");
    for (const ShownMetric& metric : shown)
      if (!std::isfinite(metric.value))
        throw CheckFailure(formatted("the metric '{}' is {}", metric.name, metric.value),
                           formatted("step {}, group {}", metric.step, metric.group));
    const std::vector<ShownMetric> again = train(subject, problem, cut, options).metrics;
    for (size_t i = 0; i < shown.size(); ++i)
      if (i >= again.size() || !(again[i] == shown[i]))
        throw CheckFailure(formatted("a second run shows another value, name or number of metrics than the first, which shows "
                                     "'{}' as {}",
                                     shown[i].name, shown[i].value),
                           formatted("step {}, group {}", shown[i].step, shown[i].group));
    if (again.size() > shown.size()) throw CheckFailure("a second run shows more metrics", text_of(place()));
  }
}

}  // namespace gannet::kit
