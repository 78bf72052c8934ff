#include "kit/optimizer/pass_checks.h"

#include "base/format.h"
#include "kit/host.h"
#include "kit/object.h"
#include "kit/optimizer/compare.h"
#include "kit/optimizer/engine.h"
#include "kit/optimizer/types.h"

namespace gannet::kit {
namespace {

constexpr double kClose = 1e-6;         // relative tolerance in the 2-norm, for runs that differ only in the order of summation
constexpr uint64_t kAskedSteps = 1000;  // steps that are queried

std::vector<bool> second_plan_of(const Subject& subject, const Problem& problem, bool backwards) {
  const Host host;
  Optimizer optimizer(*subject.plugin, subject.parsed(), host);
  optimizer.describe(context_of(problem, 0, 0, 1));
  std::vector<bool> wants(kAskedSteps);
  for (uint64_t i = 0; i < kAskedSteps; ++i) {
    const uint64_t step = backwards ? kAskedSteps - i : i + 1;
    const CallScope calling("wants_second_gradient", step);
    wants[step - 1] = optimizer.wants_second_gradient(step);
  }
  return wants;
}

TrainingResult as_params(TrainingResult trained) {
  trained.params = trained.perturbed;
  return trained;
}

}  // namespace

void perturbation(Subject& subject) {
  const Problem problem = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  if (!described.perturbs) throw SkippedCheck("it does not claim GANNET_OPTIMIZER_PERTURBS");
  const RunOptions options{.steps = 20, .is_tight = true, .perturbs = true};
  const TrainingResult whole = train(subject, problem, uncut(problem, described.rules), options);
  require_finite(as_params(whole), problem);
  if (whole.perturbed == whole.params) throw CheckFailure("it wrote the parameters as they are", "perturb, after 20 steps");
  require_same(as_params(train(subject, problem, uncut(problem, described.rules), options)), as_params(whole), problem,
               "the perturbed parameters, in a second run");
  for (const uint32_t ranks : {1u, 3u}) {
    const ProblemCut cut = sharded(problem, described.rules, ranks, 256, 64);
    const TrainingResult again = train(subject, problem, cut, options);
    if (described.has_sums)
      require_close(as_params(again), as_params(whole), problem, kClose, "the perturbed parameters, " + cut.name);
    else
      require_same(as_params(again), as_params(whole), problem, "the perturbed parameters, " + cut.name);
  }
  RunOptions scaled = options;
  scaled.scale_power = [](int64_t step) { return static_cast<int>(step % 3) + 1; };
  require_same(as_params(train(subject, problem, uncut(problem, described.rules), scaled)), as_params(whole), problem,
               "the perturbed parameters, with gradients times a power of two, and grad_scale divided by it");
  const Problem lengths = many_lengths(usual_types(subject));
  const RunOptions once{.steps = 1, .perturbs = true};
  const TrainingResult expected = train(subject, lengths, uncut(lengths, described.rules), once);
  const TrainingResult each = train(subject, lengths, by_tensor(lengths), once);
  require_finite(as_params(each), lengths);
  if (described.has_sums)
    require_close(as_params(each), as_params(expected), lengths, kClose, "the perturbed parameters, one piece a tensor");
  else
    require_same(as_params(each), as_params(expected), lengths, "the perturbed parameters, one piece a tensor");
}

void second_gradient(Subject& subject) {
  const Problem problem = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  if (!described.takes_second_gradients) throw SkippedCheck("it does not claim GANNET_OPTIMIZER_SECOND_GRADIENT");
  const std::vector<bool> plan = second_plan_of(subject, problem, false);
  const std::vector<bool> again = second_plan_of(subject, problem, true);
  uint64_t first = 0;
  for (uint64_t step = kAskedSteps; step > 0; --step) {
    if (plan[step - 1] != again[step - 1])
      throw CheckFailure(formatted("asked in another order, it answers {} where it answered {}", again[step - 1] ? 1 : 0,
                                   plan[step - 1] ? 1 : 0),
                         formatted("wants_second_gradient, step {}", step));
    if (plan[step - 1]) first = step;
  }
  if (first == 0)
    throw CheckFailure("no step wants a second gradient", formatted("wants_second_gradient, steps 1 to {}", kAskedSteps));
  const ProblemCut cut = uncut(problem, described.rules);
  const RunOptions options{.steps = static_cast<int64_t>(first) + 20, .guards_gradients = true, .is_tight = true};
  RunOptions with_another = options;
  with_another.second_seed = 31;
  const TrainingResult one = train(subject, problem, cut, options), other = train(subject, problem, cut, with_another);
  require_finite(one, problem);
  if (one.params == other.params && one.states == other.states)
    throw CheckFailure("two runs with different second gradients have the same parameters and states",
                       formatted("{} steps, of which step {} is the first to want one", options.steps, first));
}

}  // namespace gannet::kit
