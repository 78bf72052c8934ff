#include "kit/optimizer/engine.h"

#include <gannet/error.h>

#include "base/format.h"
#include "kit/host.h"
#include "kit/numbers.h"
#include "kit/optimizer/simulated_rank.h"

namespace gannet::kit {

Optimizer::Context context_of(const Problem& problem, uint32_t group, uint32_t rank, uint32_t ranks) {
  Optimizer::Context context{.group = group, .group_count = problem.groups(), .rank = rank, .world_size = ranks, .tensors = {}};
  for (size_t t = 0; t < problem.tensors.size(); ++t)
    if (const TensorSpec& tensor = problem.tensors[t]; tensor.group == group)
      context.tensors.push_back({tensor.name, t + 100, tensor.shape, tensor.numel});
  return context;
}

double plausible_loss(int64_t step) {
  return 0.5 + 2 / (1 + 0.05 * static_cast<double>(step)) + 0.1 * uniform(mixed(kRunSeed, static_cast<uint64_t>(step)));
}

TrainingResult train(const Subject& subject, const Problem& problem, const ProblemCut& cut, const RunOptions& options) {
  set_config(formatted("{}; {}", cut.name, text_of(problem.types)));
  TrainingResult trained;
  trained.group_states.resize(cut.ranks.size());
  run_ranks(static_cast<uint32_t>(cut.ranks.size()), [&](SimulatedRanks& ranks, uint32_t number) {
    SimulatedRank rank(subject, problem, cut, options, ranks, number);
    int64_t applied = options.applied;
    try {
      for (; applied < options.applied + options.steps; ++applied) rank.step(applied);
    } catch (const Error& error) {
      const std::string& text = error.message();
      if (!options.may_fail || text.find("gave no reason") != std::string::npos ||
          text.find("threw an exception across") != std::string::npos)
        throw CheckFailure(text, text_of(place()));
      trained.has_failed = true;
    }
    if (number == 0) {
      trained.described = rank.optimizer().states();
      for (const TensorSpec& tensor : problem.tensors) {
        const auto bytes = [&](gannet_dtype dtype) {
          return Bytes(dtype == GANNET_DTYPE_NONE ? 0 : tensor.numel * bytes_of(dtype));
        };
        trained.params.push_back(bytes(problem.types.param));
        trained.evaluated.push_back(bytes(problem.types.param));
        trained.perturbed.push_back(bytes(problem.types.param));
        trained.outs.push_back(bytes(problem.types.out));
        auto& states = trained.states.emplace_back();
        for (const auto& state : trained.described)
          states.push_back(
              Bytes(state.is_cut() ? state.values_of(tensor.numel) * bytes_of(type_of(state, problem.types.param)) : 0));
      }
    }
    double ready = 0;
    ranks.all_reduce(number, &ready, 1, GANNET_SUM);  // returns when rank 0 has allocated the results
    rank.give(trained);
    if (options.evaluates) rank.evaluate(applied, trained);
    if (options.perturbs) rank.perturb(applied, trained);
  });
  return trained;
}

OptimizerTraits describe(const Subject& subject, const Problem& problem) {
  const Host host;
  Optimizer optimizer(*subject.plugin, subject.parsed(), host);
  optimizer.describe(context_of(problem, 0, 0, 1));
  OptimizerTraits described;
  described.rules = {optimizer.needs_whole_tensors(), optimizer.range_alignment()};
  described.capabilities = optimizer.capabilities();
  described.is_elementwise = optimizer.has(GANNET_OPTIMIZER_ELEMENTWISE);
  described.has_sums = !optimizer.sums().empty();
  described.has_evaluation_weights = optimizer.has_evaluation_weights();
  described.owns_grad_reduction = optimizer.owns_grad_reduction();
  described.states = optimizer.states();
  described.sums = optimizer.sums();
  for (const auto& state : described.states) described.has_group_states = described.has_group_states || state.is_of_group();
  described.uses_seed = optimizer.uses_seed();
  described.perturbs = optimizer.perturbs();
  described.takes_second_gradients = optimizer.takes_second_gradients();
  described.takes_lists = optimizer.takes_lists();
  described.takes_device_numbers = optimizer.takes_device_numbers();
  described.uses_loss = optimizer.has(GANNET_OPTIMIZER_USES_LOSS);
  described.hyper_names = optimizer.hyper_names();
  described.hyper_roles = optimizer.hyper_roles();
  described.hyper = optimizer.hyper_values();
  return described;
}

}  // namespace gannet::kit
