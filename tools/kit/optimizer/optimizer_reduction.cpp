#include "kit/optimizer/optimizer_reduction.h"

#include <gannet/error.h>

#include "kit/optimizer/own_rank.h"
#include "kit/optimizer/types.h"

namespace gannet::kit {
namespace {

constexpr int64_t kSearched = 40;

// The results of all ranks after a run; throws CheckFailure if ranks that must agree differ.
std::vector<RankResults> left_by(const Subject& subject, const Problem& problem, const OwnReductionRun& run) {
  set_config(formatted("{} ranks at stage 0, buckets of {}; {}", run.ranks, run.bucket_numel, text_of(problem.types)));
  std::vector<RankResults> all(run.ranks);
  std::vector<std::unique_ptr<OwnReductionRank>> ranks(run.ranks);
  run_ranks(run.ranks, [&](SimulatedRanks& together, uint32_t number) {
    ranks[number] = std::make_unique<OwnReductionRank>(subject, problem, run, together, number);
    try {
      for (int64_t step = run.applied + 1; step <= run.applied + run.steps; ++step) ranks[number]->step(step);
    } catch (const Error& error) {
      throw CheckFailure(error.message(), text_of(place()));
    }
    all[number] = ranks[number]->left();
  });
  for (uint32_t r = 0; r < run.ranks; ++r) {
    if (!ranks[r]->is_finite()) throw CheckFailure("a parameter is NaN or infinite", formatted("rank {}", r));
    if (const std::string what = ranks[r]->difference(all[0], all[r]); !what.empty())
      throw CheckFailure(formatted("{} of ranks 0 and {} differ", what, r),
                         formatted("{} ranks, after {} steps, of which the plugin averages some itself", run.ranks, run.steps),
                         "every rank has the same", "compute them from what all ranks got by the collectives");
  }
  return all;
}

// Throws SkippedCheck if the plugin does not claim OWNS_GRAD_REDUCTION, or averages in no step
// under these params.
void require_own_steps(const Subject& subject) {
  const Host host;
  Optimizer optimizer(*subject.plugin, subject.parsed(), host);
  optimizer.describe(context_of(many_shapes({}), 0, 0, 1));
  if (!optimizer.owns_grad_reduction()) throw SkippedCheck("it does not claim GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION");
  for (int64_t step = 1; step <= kSearched; ++step)
    if (optimizer.reduces_gradients(static_cast<uint64_t>(step))) return;
  throw SkippedCheck(formatted("none of the first {} updates averages gradients: give --params under which one does", kSearched));
}

// The steps at which runs should end, within the first `kSearched` steps: the last one after which
// the ranks have the same parameters, and the last local one.
std::vector<int64_t> last_steps(const Subject& subject) {
  const Host host;
  Optimizer optimizer(*subject.plugin, subject.parsed(), host);
  optimizer.describe(context_of(many_shapes({}), 0, 0, 1));
  std::vector<int64_t> steps;
  for (const bool is_local : {false, true})
    for (int64_t step = kSearched; step > 0; --step)
      if ((optimizer.reduction(static_cast<uint64_t>(step)) == GANNET_REDUCED_LATER) == is_local) {
        steps.push_back(step);
        break;
      }
  return steps;
}

}  // namespace

void reduction_plan(Subject& subject) {
  const Problem problem = many_shapes({});
  std::vector<gannet_gradient_reduction> first;
  for (int object = 0; object < 2; ++object) {
    Host host;
    host.set_ranks(0, object + 1);  // the answer must not depend on the number of ranks
    Optimizer optimizer(*subject.plugin, subject.parsed(), host);
    optimizer.describe(context_of(problem, 0, 0, host.size()));
    if (!optimizer.owns_grad_reduction()) throw SkippedCheck("it does not claim GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION");
    std::vector<gannet_gradient_reduction> answers(1001), again(1001), at_once(1001);
    for (uint64_t step = 1; step <= 1000; ++step) answers[step] = optimizer.reduction(step);
    for (uint64_t step = 1000; step > 0; --step) {
      again[step] = optimizer.reduction(step);
      at_once[step] = optimizer.reduction(step);
    }
    if (object == 0) first = answers;
    for (uint64_t step = 1; step <= 1000; ++step)
      if (answers[step] != again[step] || answers[step] != at_once[step] || answers[step] != first[step])
        throw CheckFailure(formatted("it has two answers to who averages the gradients of step {}", step),
                           object == 0 ? "one object" : "two objects with the same params");
    for (uint64_t step = 1; step < 1000; ++step)
      if (answers[step] == GANNET_REDUCED_LATER && answers[step + 1] == GANNET_REDUCED_BY_HOST)
        throw CheckFailure(
            formatted("the host averages the gradients of step {}, after a local step: of different parameters", step + 1),
            "one object", "a step of GANNET_REDUCED_BY_UPDATE ends a run of GANNET_REDUCED_LATER");
  }
}

void optimizer_reduction(Subject& subject) {
  require_own_steps(subject);
  const Problem problem = many_shapes(usual_types(subject));
  for (const uint32_t ranks : {2u, 3u, 4u})
    for (const int64_t bucket : {256, 1 << 20})
      for (const int64_t steps : last_steps(subject)) {
        const OwnReductionRun run{.ranks = ranks, .bucket_numel = bucket, .steps = steps};
        const auto found = left_by(subject, problem, run);
        if (left_by(subject, problem, run) != found) throw CheckFailure("a second run has other results", text_of(place()));
      }
  OwnReductionRun altered{.ranks = 3};
  const auto whole = left_by(subject, problem, altered);
  altered.alters_last = true;
  const auto other = left_by(subject, problem, altered);
  for (size_t b = 0; b < whole[0].buckets.size(); ++b)
    if (whole[0].buckets[b][0] == other[0].buckets[b][0])
      throw CheckFailure("rank 0's parameters are the same whatever rank 2's gradients are", text_of(place()),
                         "update averages over all ranks", "send what the rank has with the host's collectives");
}

void optimizer_reduction_resumes(Subject& subject) {
  require_own_steps(subject);
  const Problem problem = many_shapes(usual_types(subject));
  const auto whole = left_by(subject, problem, {});
  const auto first = left_by(subject, problem, {.steps = 23});
  const auto rest = left_by(subject, problem, {.steps = 40 - 23, .applied = 23, .from = &first});
  if (rest != whole)
    throw CheckFailure("states saved after update 23, each rank's own among them, do not continue as without a stop",
                       "2 ranks, new objects", "bit for bit", "keep everything that an update needs in declared states");
}

}  // namespace gannet::kit
