#include "kit/optimizer/property_checks.h"

#include <gannet/error.h>

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "base/text.h"
#include "kit/numbers.h"
#include "kit/optimizer/compare.h"
#include "kit/optimizer/engine.h"
#include "kit/optimizer/types.h"
#include "kit/place.h"
#include "kit/process_check.h"
#include "kit/relay.h"
#include "kit/relay_fault.h"

namespace gannet::kit {
namespace {

void require_alike(const Subject& subject, const TrainingResult& found, const TrainingResult& expected, const Problem& problem,
                   const std::string& what, bool adds_in_another_order) {
  throw_kept_fault();
  if (adds_in_another_order && describe(subject, problem).has_sums)
    require_close(found, expected, problem, kReordered, what);
  else
    require_same(found, expected, problem, what);
}

// The cuts under which a property is checked: whole groups, and ZeRO shards in pages.
std::vector<ProblemCut> two_cuts(const Problem& problem, const OptimizerTraits& described) {
  return {uncut(problem, described.rules), sharded(problem, described.rules, described.owns_grad_reduction ? 1 : 2, 256, 64)};
}

// The params with one dynamic number set to another `value`, and with it set to its own value.
// nullopt if the plugin accepts no other value.
struct OtherParams {
  Dict params, own;
  double value = 0;
};
std::optional<OtherParams> other_params(const Subject& subject, const OptimizerTraits& described, size_t number) {
  const std::string& name = described.hyper_names[number];
  const size_t bracket = name.find('[');
  const std::string param = name.substr(0, bracket);
  const double value = described.hyper[number];
  for (const double other : {value * 0.75, value * 1.25, value + 0.01, 0.5, 0.1}) {
    if (other == value) continue;
    const auto with = [&](double chosen) {
      Dict params = subject.params;
      if (bracket == std::string::npos) {
        params[param] = chosen;
        return params;
      }
      List list;
      for (size_t h = 0; h < described.hyper_names.size(); ++h)
        if (described.hyper_names[h].substr(0, described.hyper_names[h].find('[')) == param)
          list.emplace_back(h == number ? chosen : described.hyper[h]);
      params[param] = std::move(list);
      return params;
    };
    try {
      Subject asked = subject;
      asked.params = with(value);
      const OptimizerTraits own = describe(asked, many_shapes({}));
      asked.params = with(other);
      const OptimizerTraits found = describe(asked, many_shapes({}));
      if (own.hyper[number] == value && found.hyper[number] == other && found.states == own.states)
        return OtherParams{with(other), with(value), other};
    } catch (const Error&) {  // the value is not legal
    }
  }
  return std::nullopt;
}

double squares_of(const std::vector<Bytes>& tensors, gannet_dtype dtype, const std::vector<Bytes>* others,
                  gannet_dtype other_dtype) {
  double total = 0;
  for (size_t t = 0; t < tensors.size(); ++t)
    for (size_t i = 0; i < tensors[t].size() / bytes_of(dtype); ++i) {
      const double apart = get(tensors[t].data(), i, dtype) - (others ? get((*others)[t].data(), i, other_dtype) : 0);
      total += apart * apart;
    }
  return total;
}

// How far the results of two types may differ, relative to the parameters' 2-norm, after a few
// steps from values that all types represent exactly.
double type_tolerance(const ProblemTypes& a, const ProblemTypes& b) {
  if (bytes_of(a.param) == 2 || bytes_of(b.param) == 2) return 3e-2;
  return 1e-3;
}

}  // namespace

// Powers of two: the product with grad_scale, and so every result, keeps the same bits.
void gradient_scale(Subject& subject) {
  const Problem problem = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  for (const ProblemCut& cut : two_cuts(problem, described)) {
    const TrainingResult expected = train(subject, problem, cut, {.steps = 25});
    const TrainingResult found = train(subject, problem, cut, {.steps = 25, .scale_power = [](int64_t step) {
                                                                 constexpr int kPowers[] = {3, 5, 0, 2, 6};
                                                                 return kPowers[step % 5];
                                                               }});
    require_alike(
        subject, found, expected, problem,
        formatted("{}; gradients times a power of two that changes from step to step, and grad_scale divided by it", cut.name),
        false);
  }
}

// `create` gets only the initial value of a hyperparameter; a step's calls have its current value.
void hyperparameters(Subject& subject) {
  const Problem problem = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  if (described.hyper.empty()) throw SkippedCheck("it has no dynamic params");
  const ProblemCut cut = uncut(problem, described.rules);
  for (size_t h = 0; h < described.hyper.size(); ++h) {
    const auto other = other_params(subject, described, h);
    if (!other) continue;
    Subject made = subject, own = subject;
    made.params = other->params;
    own.params = other->own;
    const std::string name = described.hyper_names[h];
    const auto from = [&](int64_t first) {
      return [h, first, value = other->value](int64_t step, uint32_t, std::vector<double>& hyper) {
        if (step > first) hyper[h] = value;
      };
    };
    const TrainingResult created = train(made, problem, cut, {.steps = 12});
    const TrainingResult given = train(own, problem, cut, {.steps = 12, .schedule = from(0)});
    require_same(given, created, problem,
                 formatted("'{}' is {} in every call and {} in create, against {} in both", name, short_number(other->value),
                           short_number(described.hyper[h]), short_number(other->value)));
    const TrainingResult begun = train(own, problem, cut, {.steps = 5});
    const TrainingResult rest = train(made, problem, cut, {.steps = 7, .applied = 5, .from = &begun});
    require_same(train(own, problem, cut, {.steps = 12, .schedule = from(5)}), rest, problem,
                 formatted("'{}' becomes {} after step 5, against a new object that begins there with {}", name,
                           short_number(other->value), short_number(other->value)));
  }
}

void labels(Subject& subject) {
  const Problem problem = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  for (const ProblemCut& cut : two_cuts(problem, described)) {
    const TrainingResult expected = train(subject, problem, cut, {.steps = 20});
    const RelayScope scope({.copies_arguments = true, .relabels = true});
    require_alike(subject, train(subject, problem, cut, {.steps = 20}), expected, problem,
                  formatted("{}; with other tensor ids, group numbers and addresses", cut.name), false);
  }
}

// A tensor's results do not depend on the others in its group: every second tensor is left out.
void neighbours(Subject& subject) {
  const Problem all = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, all);
  for (const auto& sum : described.sums)
    if (sum.scope == GANNET_SUM_OF_GROUP || sum.scope == GANNET_SUM_OF_MODEL)
      throw SkippedCheck("it has sums over the group or the model");
  for (const auto& state : described.states)
    if (state.extent == GANNET_STATE_SCALAR) throw SkippedCheck("it has a state of the group");
  if (described.owns_grad_reduction) throw SkippedCheck("it averages gradients itself");
  Problem some = all;
  std::vector<size_t> kept;
  some.tensors.clear();
  some.seed_of.clear();
  some.delay.clear();
  for (size_t t = 0; t < all.tensors.size(); ++t) {
    if (t % 2 == 0 && t != 4) continue;  // 4 is the only matrix of its group at an even index
    kept.push_back(t);
    some.tensors.push_back(all.tensors[t]);
    some.seed_of.push_back(all.seed_of[t]);
    some.delay.push_back(all.delay[t]);
  }
  const TrainingResult together = train(subject, all, uncut(all, described.rules), {.steps = 12});
  TrainingResult expected = together;
  expected.params.clear();
  expected.outs.clear();
  expected.states.clear();
  for (const size_t t : kept) {
    expected.params.push_back(together.params[t]);
    expected.outs.push_back(together.outs[t]);
    expected.states.push_back(together.states[t]);
  }
  TrainingResult apart = train(subject, some, uncut(some, described.rules), {.steps = 12});
  apart.group_states = expected.group_states;  // their indices differ
  require_alike(subject, apart, expected, some, "some tensors of each group, against all of them", true);
}

void threads(Subject& subject) {
  const Problem problem = with_a_large_one(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  const ProblemCut cut = uncut(problem, described.rules);
  const auto run = [&](uint32_t count, bool reverses) {
    const RelayScope scope({.threads = count, .reverses_chunks = reverses, .guards_allocations = true});
    return train(subject, problem, cut,
                 {.steps = 3, .evaluates = described.has_evaluation_weights && !described.owns_grad_reduction});
  };
  const TrainingResult expected = run(1, false);
  for (const auto& [count, reverses] : {std::pair{2u, false}, {3u, false}, {7u, false}, {1u, true}, {3u, true}})
    require_alike(subject, run(count, reverses), expected, problem,
                  formatted("on {} thread(s){}, against one", count, reverses ? ", many chunks, the last one first" : ""), true);
}

// If the host refuses memory, a rule may work as before or fail; nothing else is allowed.
void refused_memory(Subject& subject) {
  const Problem problem = with_a_large_one(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  const ProblemCut cut = uncut(problem, described.rules);
  const TrainingResult expected = train(subject, problem, cut, {.steps = 3});
  bool is_any = false;
  for (const int64_t served : {0, 1, 2, 5}) {
    const RelayScope scope({.threads = 2, .allocations = served});
    const uint64_t before = refused_allocations();
    TrainingResult found;
    try {
      found = train(subject, problem, cut, {.steps = 3, .may_fail = true});
    } catch (const Error& error) {  // create or describe failed, with an error message
      is_any = true;
      continue;
    }
    if (refused_allocations() == before) break;
    is_any = true;
    if (!found.has_failed)
      require_alike(subject, found, expected, problem,
                    formatted("gannet_host::allocate gives memory {} time(s) and then null, and every call succeeds", served),
                    true);
  }
  if (!is_any) throw SkippedCheck("it asks the host for no memory");
}

void other_hosts(Subject& subject) {
  const Problem problem = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  const auto has = [&](uint64_t bits) { return (described.capabilities & bits) != 0; };
  bool has_limit = false, has_factors = false;
  for (const auto& state : described.states) {
    has_limit = has_limit || state.has_matrices();
    has_factors = has_factors || (state.has_matrices() && !state.is_square());
  }
  const uint32_t needed = has(GANNET_OPTIMIZER_USES_LOSS) || has_factors                                   ? 4
                          : has(GANNET_OPTIMIZER_TAKES_LISTS | GANNET_OPTIMIZER_TAKES_DEVICE_NUMBERS)      ? 3
                          : has(GANNET_OPTIMIZER_PERTURBS | GANNET_OPTIMIZER_SECOND_GRADIENT)              ? 2
                          : has(GANNET_OPTIMIZER_USES_SEED | GANNET_OPTIMIZER_USES_WORKSPACE) || has_limit ? 1
                                                                                                           : 0;
  const RunOptions options{.steps = 12,
                           .total_steps = run_length(0),  // older hosts do not provide it
                           .perturbs = described.perturbs,
                           .evaluates = described.has_evaluation_weights && !described.owns_grad_reduction};
  for (const ProblemCut& cut : two_cuts(problem, described)) {
    const TrainingResult expected = train(subject, problem, cut, options);
    const auto compare = [&](const RelayOptions& shape, const std::string& name) {
      const RelayScope scope(shape);
      for (const size_t length : {size_t{0}, size_t{3}}) {
        if (length > 0 && !described.takes_lists) break;
        RunOptions listed = options;
        listed.list_length = length;
        require_alike(subject, train(subject, problem, cut, listed), expected, problem, formatted("{}; {}", cut.name, name),
                      length > 0);
      }
    };
    compare({.appended_bytes = 64}, "structs and strides that are longer, as a later minor makes them");
    for (uint32_t minor = std::max(needed, subject.least_minor); minor < GANNET_ABI_MINOR; ++minor)
      compare({.minor = minor}, formatted("structs as a host of ABI {}.{} makes them", GANNET_ABI_MAJOR, minor));
  }
}

// Structs, lists of pointers and numbers are in write-protected memory during each call.
void arguments_untouched(Subject& subject) {
  const Problem problem = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  const RelayScope scope({.copies_arguments = true});
  for (const size_t length : {size_t{0}, size_t{4}}) {
    if (length > 0 && !described.takes_lists) break;
    for (const ProblemCut& cut : two_cuts(problem, described)) {
      train(subject, problem, cut,
            {.steps = 5,
             .perturbs = described.perturbs,
             .list_length = length,
             .evaluates = described.has_evaluation_weights && !described.owns_grad_reduction});
      throw_kept_fault();
    }
  }
}

// Short runs with each combination of types: cut, scaled, resumed, and compared with the first one.
void all_types(Subject& subject) {
  usual_types(subject);
  const auto all = supported_types(subject);
  Problem exact = many_shapes(all.front());
  exact.is_coarse = true;
  const OptimizerTraits described = describe(subject, exact);
  const RunOptions options{.steps = 4};
  const TrainingResult first = train(subject, exact, uncut(exact, described.rules), options);
  const double norm = std::sqrt(squares_of(first.params, exact.types.param, nullptr, exact.types.param));
  for (const ProblemTypes& types : all) {
    Problem problem = exact;
    problem.types = types;
    const TrainingResult whole = train(subject, problem, uncut(problem, described.rules), options);
    const double apart = std::sqrt(squares_of(whole.params, types.param, &first.params, exact.types.param));
    if (!described.uses_seed && !(apart <= type_tolerance(types, exact.types) * norm))
      throw CheckFailure(
          formatted("the parameters are {} apart from those of another combination of types, relative to their 2-norm",
                    short_number(apart / norm)),
          formatted("{}, against {}; 4 steps from values that both have exactly", text_of(types), text_of(exact.types)),
          "all types that `supports` accepts are trained by the same rule");
    for (const ProblemCut& cut : {anywhere(problem, described.rules, 1), two_cuts(problem, described)[1]})
      require_alike(subject, train(subject, problem, cut, options), whole, problem, formatted("{}; {}", text_of(types), cut.name),
                    true);
    const TrainingResult scaled = train(subject, problem, uncut(problem, described.rules),
                                        {.steps = 4, .scale_power = [](int64_t step) { return static_cast<int>(step % 3) + 1; }});
    require_alike(subject, scaled, whole, problem,
                  formatted("{}; gradients times a power of two, and grad_scale divided by it", text_of(types)), false);
    if (types.grad == GANNET_FLOAT16) {  // multiples of 2^-24: the subnormal numbers
      const TrainingResult tiny =
          train(subject, problem, uncut(problem, described.rules), {.steps = 4, .scale_power = [](int64_t) { return -14; }});
      require_alike(subject, tiny, whole, problem,
                    formatted("{}; subnormal gradients, and grad_scale times 2^14", text_of(types)), false);
    }
    const TrainingResult half = train(subject, problem, uncut(problem, described.rules), {.steps = 2});
    require_alike(subject, train(subject, problem, uncut(problem, described.rules), {.steps = 2, .applied = 2, .from = &half}),
                  whole, problem, formatted("{}; a new object with the saved states after step 2", text_of(types)), false);
  }
}

void piece_lengths(Subject& subject) {
  const Problem problem = many_lengths(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  const TrainingResult whole = train(subject, problem, uncut(problem, described.rules), {.steps = 2});
  require_finite(whole, problem);
  std::vector<ProblemCut> cuts = {by_tensor(problem)};
  if (!described.rules.whole_tensors) cuts.push_back(sharded(problem, described.rules, 1, 1 << 20, 30000));
  for (const ProblemCut& cut : cuts)
    require_alike(subject, train(subject, problem, cut, {.steps = 2}), whole, problem, cut.name, true);
}

// Long runs: the step number exceeds what a float, an int or an unsigned int can count. Steps just
// before and just after such a limit must move the parameters alike.
void far_steps(Subject& subject) {
  const Problem problem = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  if (described.owns_grad_reduction) throw SkippedCheck("who averages gradients may depend on the step");
  const gannet_dtype type = problem.types.param;
  const auto run = [&](int64_t applied) {  // with the same gradients wherever the run begins
    Problem delayed = problem;
    std::fill(delayed.delay.begin(), delayed.delay.end(), applied);
    return train(subject, delayed, uncut(delayed, described.rules),
                 {.steps = 2, .applied = applied, .total_steps = run_length(0)});
  };
  const TrainingResult untrained = train(subject, problem, uncut(problem, described.rules), {.steps = 0});
  const double epsilon = bytes_of(type) == 2 ? 0x1p-8 : type == GANNET_FLOAT32 ? 0x1p-23 : 0x1p-52;
  const double rounding = epsilon * epsilon * squares_of(untrained.params, type, nullptr, type);
  constexpr int64_t kApart = 15120;  // a multiple of the intervals that most rules have
  for (const int bits : {24, 31, 32, 40}) {
    const int64_t number = int64_t{1} << bits;
    const TrainingResult before = run(number - kApart), behind = run(number);
    set_config(formatted("2 steps from {} and from {}", number - kApart, number));
    require_finite(before, problem);
    require_finite(behind, problem);
    const double moved = squares_of(before.params, type, &untrained.params, type);
    const double apart = squares_of(before.params, type, &behind.params, type);
    // Random numbers, second gradients and losses differ from step to step; steps that decay with their
    // number may be too small to see.
    const bool is_comparable =
        !described.uses_seed && !described.takes_second_gradients && !described.uses_loss && moved > 1000 * rounding;
    if (is_comparable && !(apart <= 1e-4 * moved + 100 * rounding))
      throw CheckFailure(formatted("a step just after 2^{} ends elsewhere than one just before it: by {} of what it moved", bits,
                                   short_number(std::sqrt(apart / moved))),
                         text_of(place()));
  }
}

void partial_sums(Subject& subject) {
  const Problem problem = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  if (!described.has_sums) throw SkippedCheck("it wants no sums");
  train(subject, problem, sharded(problem, described.rules, 1, 256, 64), {.steps = 2, .combines_sums = true});
}

void use_optimizer(Subject& subject) {
  if (!works_on_host(*subject.plugin)) return;  // only `create` can be watched here
  const Problem problem = many_shapes(usual_types(subject));
  const OptimizerTraits described = describe(subject, problem);
  const ProblemCut cut = described.rules.whole_tensors ? by_tensor(problem) : sharded(problem, described.rules, 1, 1 << 20, 500);
  for (const size_t length : {size_t{0}, size_t{1024}}) {
    if (length > 0 && !described.takes_lists) break;
    train(subject, problem, cut,
          {.steps = 12,
           .perturbs = described.perturbs,
           .list_length = length,
           .evaluates = described.has_evaluation_weights && !described.owns_grad_reduction});
    throw_kept_fault();
  }
}

}  // namespace gannet::kit
