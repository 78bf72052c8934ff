// Checks that an optimizer's results are finite and repeatable, and that they are the same for
// every cut of the model, after a resume and under a schedule.
#include "kit/optimizer/result_checks.h"

#include <malloc.h>

#include <bit>
#include <cmath>
#include <thread>

#include "base/format.h"
#include "base/text.h"
#include "kit/numbers.h"
#include "kit/optimizer/compare.h"
#include "kit/optimizer/extents.h"
#include "kit/optimizer/types.h"
#include "kit/place.h"

namespace gannet::kit {
namespace {

Problem usual(const Subject& subject) { return many_shapes(usual_types(subject)); }

// Fills the memory of malloc and of new with a byte, for its lifetime (glibc; elsewhere it does
// nothing). The smallest blocks, which a thread reuses, are left out.
class FilledHeap {
 public:
  explicit FilledHeap(int byte) { fill(byte); }
  ~FilledHeap() { fill(0); }
  FilledHeap(const FilledHeap&) = delete;

 private:
  static void fill([[maybe_unused]] int byte) {
#ifdef M_PERTURB
    mallopt(M_PERTURB, byte);
#endif
  }
};

}  // namespace

// A rule that reads memory before it writes there finds other values in each run.
void repeat(Subject& subject) {
  const Problem problem = usual(subject);
  const auto run = [&](int fill) {
    const FilledHeap heap(fill);
    return train(subject, problem, uncut(problem, rules_of(subject, problem)), {});
  };
  const TrainingResult first = run(0x55);
  require_finite(first, problem);
  require_same(run(0x2a), first, problem, "a second run with a new object and other contents of uninitialised memory");
}

// Cuts at arbitrary places that the description allows, including inside a SIMD vector.
void halves(Subject& subject) {
  const Problem problem = usual(subject);
  const OptimizerTraits described = describe(subject, problem);
  if (!described.is_elementwise) throw SkippedCheck("it does not claim GANNET_OPTIMIZER_ELEMENTWISE");
  const RunOptions options{.steps = described.has_sums ? 20 : 60};
  const TrainingResult whole = train(subject, problem, by_tensor(problem), options);
  for (const uint64_t seed : {0, 1, 2}) {
    const ProblemCut cut = anywhere(problem, described.rules, seed);
    const TrainingResult parts = train(subject, problem, cut, options);
    if (described.has_sums)
      require_close(parts, whole, problem, kReordered, cut.name);
    else
      require_same(parts, whole, problem, cut.name);
  }
}

void any_cut(Subject& subject) {
  const Problem problem = usual(subject);
  const OptimizerTraits described = describe(subject, problem);
  const auto compare = [&](const Problem& of, const TrainingResult& found, const TrainingResult& expected,
                           const std::string& name) {
    if (described.has_sums)
      require_close(found, expected, of, kReordered, name);
    else
      require_same(found, expected, of, name);
  };
  const RunOptions options{.steps = 20};
  const TrainingResult whole = train(subject, problem, uncut(problem, rules_of(subject, problem)), options);
  std::vector<ProblemCut> cuts = {by_tensor(problem), sharded(problem, described.rules, 1, 1 << 20, 64)};
  for (const uint32_t ranks : {2u, 3u, 4u}) {
    if (described.owns_grad_reduction) break;  // works only at stage 0: see optimizer_reduction.cpp
    cuts.push_back(sharded(problem, described.rules, ranks, 1 << 20, 1 << 20));
    cuts.push_back(sharded(problem, described.rules, ranks, 256, 64));
  }
  for (const ProblemCut& cut : cuts) compare(problem, train(subject, problem, cut, options), whole, cut.name);
  const Problem large = with_a_large_one(problem.types);  // uses the host's threads
  const TrainingResult whole_large = train(subject, large, uncut(large, rules_of(subject, large)), {.steps = 3});
  const ProblemCut cut = sharded(large, described.rules, described.owns_grad_reduction ? 1 : 2, 1 << 20, 8192);
  compare(large, train(subject, large, cut, {.steps = 3}), whole_large, cut.name);
}

void agree(Subject& subject) {
  const Problem problem = usual(subject);
  const OptimizerTraits described = describe(subject, problem);
  if (!described.has_group_states) throw SkippedCheck("it has no state per tensor or per group");
  if (described.owns_grad_reduction) throw SkippedCheck("it averages gradients itself: own-reduction compares its ranks");
  for (const uint32_t ranks : {2u, 3u})
    require_ranks_agree(train(subject, problem, sharded(problem, described.rules, ranks, 256, 64), {.steps = 20}));
}

void resume(Subject& subject) {
  const Problem problem = usual(subject);
  const TrainingResult whole = train(subject, problem, uncut(problem, rules_of(subject, problem)), {.steps = 60});
  const TrainingResult first = train(subject, problem, uncut(problem, rules_of(subject, problem)), {.steps = 23});
  const TrainingResult rest =
      train(subject, problem, uncut(problem, rules_of(subject, problem)), {.steps = 37, .applied = 23, .from = &first});
  require_same(rest, whole, problem, "states saved after update 23 and restored into a new object");
  // An optimizer that acts every hundred updates or so must not count the updates in its object.
  const Problem small = many_shapes(usual_types(subject));
  const ProblemCut cut = uncut(small, rules_of(subject, small));
  const TrainingResult early = train(subject, small, cut, {.steps = 23});
  require_same(train(subject, small, cut, {.steps = 577, .applied = 23, .from = &early}),
               train(subject, small, cut, {.steps = 600}), small,
               "600 updates, with states saved after update 23 and restored into a new object");
}

void lag(Subject& subject) {
  Problem problem = usual(subject);
  const OptimizerTraits described = describe(subject, problem);
  constexpr int64_t kMissed = 7;
  for (const size_t t : {size_t{3}, size_t{6}}) problem.tensors[t].joins = kMissed;
  const TrainingResult lagging = train(subject, problem, uncut(problem, rules_of(subject, problem)), {.steps = 40});
  require_finite(lagging, problem);
  if (described.has_sums || described.has_group_states || described.uses_seed || described.takes_second_gradients ||
      described.uses_loss) {
    // Other tensors, or the group's number of steps, may affect the result, so only compare
    // different cuts.
    require_close(train(subject, problem, by_tensor(problem), {.steps = 40}), lagging, problem, kReordered, "one piece a tensor");
    return;
  }
  // Train the same tensors in their own run, which begins when they joined.
  Problem alone = problem;
  for (size_t t = 0; t < alone.tensors.size(); ++t) {
    alone.tensors[t].joins = 0;
    alone.delay[t] = -kMissed;
  }
  TrainingResult own = train(subject, alone, uncut(alone, rules_of(subject, alone)), {.steps = 40 - kMissed});
  for (size_t t = 0; t < problem.tensors.size(); ++t)
    if (problem.tensors[t].joins == 0) {
      own.params[t] = lagging.params[t];
      own.states[t] = lagging.states[t];
      own.outs[t] = lagging.outs[t];
    }
  require_same(lagging, own, problem, formatted("tensors that missed {} updates, against a run that begins with them", kMissed));
}

// The index of the learning rate among the dynamic numbers. Throws SkippedCheck if there is none or it is 0.
size_t learning_rate(const OptimizerTraits& described) {
  size_t rate = described.hyper_roles.size();
  for (size_t h = 0; h < described.hyper_roles.size(); ++h)
    if (described.hyper_roles[h] == GANNET_ROLE_LEARNING_RATE) rate = h;
  if (rate == described.hyper_roles.size()) throw SkippedCheck("no dynamic param has the role of the learning rate");
  if (described.hyper[rate] == 0) throw SkippedCheck("the learning rate is 0 with these params: give --params with another");
  return rate;
}

void schedule(Subject& subject) {
  const Problem problem = usual(subject);
  const size_t rate = learning_rate(describe(subject, problem));
  const auto changing = [rate](int64_t step, uint32_t, std::vector<double>& hyper) {
    if (step > 10) hyper[rate] *= 0.5 + static_cast<double>(step % 5) / 5;
  };
  const TrainingResult constant = train(subject, problem, uncut(problem, rules_of(subject, problem)), {.steps = 30});
  const TrainingResult whole =
      train(subject, problem, uncut(problem, rules_of(subject, problem)), {.steps = 30, .schedule = changing});
  require_finite(whole, problem);
  if (whole.params == constant.params)
    throw CheckFailure("the parameters are those of a constant learning rate", "30 steps, of which the last 20 have other rates",
                       "each update uses the hyper that it is given", "read args->hyper in update, not the param in create");
  const TrainingResult first =
      train(subject, problem, uncut(problem, rules_of(subject, problem)), {.steps = 17, .schedule = changing});
  require_same(train(subject, problem, uncut(problem, rules_of(subject, problem)),
                     {.steps = 13, .applied = 17, .from = &first, .schedule = changing}),
               whole, problem, "a new object from update 17 on, with the same rates");
}

// The groups of a run have rates of their own: a group is trained by its own, whatever the others' are.
void groups(Subject& subject) {
  const Problem problem = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  for (const auto& sum : described.sums)
    if (sum.scope == GANNET_SUM_OF_MODEL) throw SkippedCheck("it has sums over the model");
  const size_t rate = learning_rate(described);
  const ProblemCut cut = uncut(problem, described.rules);
  const auto run = [&](std::vector<double> factors) {
    return train(subject, problem, cut, {.steps = 12, .schedule = [&](int64_t, uint32_t group, std::vector<double>& hyper) {
                                           hyper[rate] *= factors[group];
                                         }});
  };
  const std::vector<double> factors(problem.groups(), 1);
  const TrainingResult expected = run(factors);
  for (uint32_t g = 0; g < problem.groups(); ++g) {
    std::vector<double> others(problem.groups(), 0.5);
    others[g] = 1;
    const TrainingResult found = run(others);
    // Only the tensors of this group are compared.
    TrainingResult own = found;
    for (size_t t = 0; t < problem.tensors.size(); ++t)
      if (problem.tensors[t].group != g) {
        own.params[t] = expected.params[t];
        own.states[t] = expected.states[t];
        own.outs[t] = expected.outs[t];
      }
    own.group_states = expected.group_states;
    require_same(own, expected, problem, formatted("group {}, where the other groups have half the learning rate", g));
  }
}

void random_numbers(Subject& subject) {
  const Problem problem = usual(subject);
  const OptimizerTraits described = describe(subject, problem);
  if (!described.uses_seed) throw SkippedCheck("it does not claim GANNET_OPTIMIZER_USES_SEED");
  const ProblemCut cut = uncut(problem, described.rules);
  const TrainingResult one = train(subject, problem, cut, {.steps = 20});
  if (train(subject, problem, cut, {.steps = 20, .run_seed = 12}).params == one.params)
    throw CheckFailure("two runs with different seeds have the same parameters", "20 steps");
  // Two tensors that differ only in name.
  Problem twins = problem;
  twins.tensors = {problem.tensors.back(), problem.tensors.back()};
  twins.tensors[1].name = "twin";
  twins.tensors[0].group = twins.tensors[1].group = 0;
  twins.seed_of = {1, 1};
  twins.delay = {0, 0};
  const TrainingResult found = train(subject, twins, uncut(twins, described.rules), {.steps = 5});
  if (found.params[0] == found.params[1])
    throw CheckFailure("two tensors draw the same numbers", "5 steps of two tensors that differ in their names alone",
                       "each tensor has numbers of its own", "mix gannet_segment::seed in (gannet::sdk::ElementRandom does)");
}

namespace {

// Numbers that show differences in rounding: halfway between two neighbours of bf16, fp16 and fp32,
// the largest ones and beyond, subnormal ones, both zeros.
std::vector<double> hard_to_round() {
  std::vector<double> numbers = {0.0, -0.0, 65504, 65519, 65520, 3.3895313892515355e38, 3.4028234663852886e38, 1e39};
  for (const int bits : {8, 11, 24})  // of the significand
    for (const double odd : {1.0, 3.0, 5.0}) {
      numbers.push_back(1 + odd * std::ldexp(1.0, -bits));
      numbers.push_back(1 + odd * std::ldexp(1.0, -bits) + std::ldexp(1.0, -22));
      numbers.push_back(odd * std::ldexp(1.0, bits == 8 ? -134 : bits == 11 ? -25 : -150));  // among the subnormal ones
    }
  for (size_t i = 2; i < 8 + 3 * 9; ++i) numbers.push_back(-numbers[i]);
  return numbers;
}

void require_rounded(const Problem& problem, const TrainingResult& trained) {
  const ProblemTypes& types = problem.types;
  for (size_t t = 0; t < problem.tensors.size(); ++t)
    for (uint64_t i = 0; i < problem.tensors[t].numel; ++i) {
      char rounded[8];
      const double param = get(trained.params[t].data(), i, types.param);
      put(rounded, 0, types.out, param);
      const double expected = get(rounded, 0, types.out), found = get(trained.outs[t].data(), i, types.out);
      if (found != expected && !(std::isnan(found) && std::isnan(expected)))
        throw CheckFailure(formatted("`out` is {}, and the new parameter {} rounds to {}", short_number(found),
                                     short_number(param), short_number(expected)),
                           formatted("{}; tensor '{}', element {}", text_of(types), problem.tensors[t].name, i));
    }
}

}  // namespace

void copy_out(Subject& subject) {
  usual_types(subject);
  const OptimizerTraits described = describe(subject, many_shapes({}));
  // A learning rate of 0 and gradients of 0, so that parameters stay unchanged.
  const auto at_rest = [&](int64_t, uint32_t, std::vector<double>& hyper) {
    for (size_t h = 0; h < hyper.size(); ++h)
      if (described.hyper_roles[h] == GANNET_ROLE_LEARNING_RATE) hyper[h] = 0;
  };
  bool is_any = false;
  for (const ProblemTypes& types : supported_types(subject)) {
    if (types.out == GANNET_DTYPE_NONE) continue;
    is_any = true;
    const Problem problem = many_shapes(types);
    const TrainingResult trained = train(subject, problem, uncut(problem, rules_of(subject, problem)), {.steps = 5});
    require_rounded(problem, trained);
    Problem chosen = problem;
    for (const auto& numbers :
         {hard_to_round(), std::vector<double>{NAN, std::bit_cast<double>(~uint64_t{0} >> 1), INFINITY, -INFINITY, 1}}) {
      chosen.chosen = numbers;
      const TrainingResult found =
          train(subject, chosen, uncut(chosen, described.rules), {.steps = 1, .schedule = at_rest, .may_fail = true});
      if (!found.has_failed) require_rounded(chosen, found);
    }
  }
  if (!is_any) throw SkippedCheck("it supports no copy");
}

void support(Subject& subject) {
  usual_types(subject);
  const auto all = supported_types(subject, /*is_strict=*/true);
  for (const ProblemTypes& types : all) {
    const Problem problem = many_shapes(types);
    require_finite(train(subject, problem, uncut(problem, rules_of(subject, problem)), {.steps = 3}), problem);
  }
}

void nonfinite(Subject& subject) {
  Problem problem = usual(subject);
  problem.has_nonfinite = true;
  train(subject, problem, uncut(problem, rules_of(subject, problem)), {.steps = 5, .may_fail = true});
}

// Objects of the same plugin are independent of each other.
void two_at_once(Subject& subject) {
  const Problem problem = usual(subject);
  Problem other = problem;
  other.seed = 77;
  const ProblemCut cut = uncut(problem, rules_of(subject, problem));
  const TrainingResult alone[2] = {train(subject, problem, cut, {.steps = 60}), train(subject, other, cut, {.steps = 60})};
  for (int round = 0; round < 4; ++round) {
    TrainingResult beside[2];
    std::exception_ptr thrown[2];
    std::vector<std::thread> threads;
    for (const int which : {0, 1})
      threads.emplace_back([&, which] {
        use_place(static_cast<size_t>(which) + 1);
        try {
          beside[which] = train(subject, which == 0 ? problem : other, cut, {.steps = 60});
        } catch (...) {
          thrown[which] = std::current_exception();
        }
      });
    for (auto& thread : threads) thread.join();
    for (const auto& each : thrown)
      if (each) std::rethrow_exception(each);
    for (const int which : {0, 1})
      require_same(beside[which], alone[which], problem, "two objects in two threads, against each alone");
  }
}

void evaluation(Subject& subject) {
  const Problem problem = usual(subject);
  const OptimizerTraits described = describe(subject, problem);
  if (!described.has_evaluation_weights) throw SkippedCheck("the weights that it trains are those to use");
  if (described.owns_grad_reduction) throw SkippedCheck("they are those after local steps: own-reduction compares its ranks");
  const RunOptions options{.steps = 20, .is_tight = true, .evaluates = true};
  TrainingResult whole = train(subject, problem, uncut(problem, described.rules), options);
  const TrainingResult again = train(subject, problem, sharded(problem, described.rules, 3, 256, 64), options);
  const auto as_params = [](TrainingResult trained) {
    trained.params = trained.evaluated;
    return trained;
  };
  require_finite(as_params(whole), problem);
  if (described.has_sums)
    require_close(as_params(again), as_params(whole), problem, kReordered, "the weights for evaluation, on 3 ranks");
  else
    require_same(as_params(again), as_params(whole), problem, "the weights for evaluation, on 3 ranks");
  if (described.is_elementwise && !described.has_sums)
    require_same(as_params(train(subject, problem, anywhere(problem, described.rules, 1), options)), as_params(whole), problem,
                 "the weights for evaluation, cut anywhere");
  const ProblemCut at_once = uncut(problem, described.rules);
  require_finite(as_params(train(subject, problem, at_once, {.steps = 0, .evaluates = true})), problem);
  const TrainingResult half = train(subject, problem, at_once, {.steps = 10});
  require_same(as_params(train(subject, problem, at_once, {.steps = 10, .applied = 10, .from = &half, .evaluates = true})),
               as_params(whole), problem, "the weights for evaluation, of a new object with the states saved after update 10");
  const Problem lengths = many_lengths(usual_types(subject));
  const RunOptions once{.steps = 1, .evaluates = true};
  const TrainingResult each = train(subject, lengths, by_tensor(lengths), once);
  require_finite(as_params(each), lengths);
  if (described.has_sums)
    require_close(as_params(each), as_params(train(subject, lengths, uncut(lengths, described.rules), once)), lengths, kReordered,
                  "the weights for evaluation, one piece a tensor");
  else
    require_same(as_params(each), as_params(train(subject, lengths, uncut(lengths, described.rules), once)), lengths,
                 "the weights for evaluation, one piece a tensor");
}

void against_reference(Subject& subject) {
  if (!subject.reference) throw SkippedCheck("no --reference is given");
  const Problem problem = usual(subject);
  const TrainingResult expected = train(subject, problem, uncut(problem, rules_of(subject, problem)), {.uses_reference = true});
  require_close(train(subject, problem, uncut(problem, rules_of(subject, problem)), {}), expected, problem, subject.tolerance,
                formatted("200 steps against {}", subject.reference->file));
}

}  // namespace gannet::kit
