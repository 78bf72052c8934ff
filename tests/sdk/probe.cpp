#include "probe.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <gannet/sdk.hpp>

#include "base/format.h"
#include "base/text.h"
#include "interfaces/scheduler.h"
#include "kit/optimizer/engine.h"
#include "plugin/note.h"
#include "plugin/open.h"

namespace gannet::sdk_tests {
namespace {

constexpr int kSteps = 12;

std::string decimals(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.9f", value);
  return text;
}

// Numbers for params that have no default, each one larger than those before it: bounds come in that order.
Dict with_required(const plugin::Plugin& plugin) {
  Dict params;
  const gannet_descriptor& descriptor = *plugin.descriptor;
  for (uint64_t i = 0; i < descriptor.param_count; ++i) {
    const auto& spec = sdk::element(descriptor.params, descriptor.param_stride, i);
    // Some schedules want one of two: min_lr or min_lr_rate, num_stable_steps or total_num_steps.
    const std::string name = spec.name;
    if (!(spec.flags & GANNET_PARAM_REQUIRED) && name != "min_lr_rate" && name != "total_num_steps") continue;
    const auto number = static_cast<int64_t>(i + 1);
    params[spec.name] = spec.type == GANNET_PARAM_INT ? Value(1000 * number) : Value(1e-3 * static_cast<double>(number));
  }
  return params;
}

// The probe's own, as are its planned steps: lines of other times must stay valid.
double loss_of(int64_t step) { return 0.5 + 4.0 / static_cast<double>(step); }

// What only a plugin that uses 2.4 leaves: the sums of its factors, and the numbers that it shows.
std::string factors_and_metrics(const kit::TrainingResult& trained,
                                const std::function<std::string(const std::vector<kit::Bytes>&)>& size_of) {
  std::string text;
  std::vector<kit::Bytes> factors;
  for (size_t s = 0; s < trained.described.size(); ++s) {
    const Optimizer::State& state = trained.described[s];
    if (!state.has_matrices() || state.is_square()) continue;
    for (const auto& of_tensor : trained.states) factors.push_back(of_tensor[s]);
  }
  if (!factors.empty()) text += formatted(", factors {}", size_of(factors));
  double sum = 0;
  for (const kit::ShownMetric& metric : trained.metrics) sum += metric.value;
  if (!trained.metrics.empty()) text += formatted(", {} metrics of sum {}", trained.metrics.size(), decimals(sum));
  return text;
}

std::string trained(const plugin::Plugin& plugin, const Dict& params) {
  kit::Subject subject;
  subject.plugin = &plugin;
  subject.params = params;
  const kit::Problem problem = kit::many_shapes({});
  const kit::ProblemCut cut = kit::sharded(problem, kit::describe(subject, problem).rules, 2, 256, 64);
  const auto size_of = [](const std::vector<kit::Bytes>& tensors) {
    double sum = 0, size = 0;
    for (const auto& tensor : tensors)
      for (size_t i = 0; i < tensor.size(); i += sizeof(float)) {
        float value;
        std::memcpy(&value, tensor.data() + i, sizeof(value));
        sum += value;
        size += std::abs(value);
      }
    return formatted("{} of size {}", decimals(sum), decimals(size));
  };
  const kit::OptimizerTraits described = kit::describe(subject, problem);
  const bool perturbs = described.perturbs;
  const size_t list_length = described.takes_lists ? 3 : 0;
  const kit::TrainingResult trained = kit::train(subject, problem, cut,
                                                 {.steps = kSteps,
                                                  .loss = loss_of,
                                                  .total_steps = kit::run_length(kSteps),
                                                  .perturbs = perturbs,
                                                  .list_length = list_length});
  return formatted("parameters {}{}{}", size_of(trained.params),
                   perturbs ? formatted(", perturbed {}", size_of(trained.perturbed)) : std::string(),
                   factors_and_metrics(trained, size_of));
}

std::string scheduled(const plugin::Plugin& plugin, const Dict& params) {
  const Host host;
  const Scheduler scheduler(plugin, plugin::parse_params(plugin, params, {}), host, 1);
  Scheduler::Values base;
  base[GANNET_ROLE_LEARNING_RATE] = 0.125;
  std::string text = "rates";
  std::vector<double> state = scheduler.first_state();
  for (int step = 0; step < kSteps; ++step) {
    if (step > 0) state = scheduler.advanced(step, scheduler.needs_metric() ? 1.0 + step % 3 : NAN, state);
    text += ' ' + decimals(scheduler.at(step, 0, base, state)[GANNET_ROLE_LEARNING_RATE].value_or(-1));
  }
  return text;
}

}  // namespace

const std::vector<const plugin::Plugin*>& open_file(const std::string& file) {
  const plugin::Candidate candidate = plugin::read_candidate(file);
  if (!candidate.rejected.empty()) throw Error(ErrorCode::kPlugin, formatted("{} {}", file, candidate.rejected));
  return plugin::open(candidate);
}

std::string probe(const plugin::Plugin& plugin) {
  const Dict params = with_required(plugin);
  std::string what = "opened";
  if (plugin.kind() == GANNET_KIND_OPTIMIZER && plugin.device() == "cpu") what = trained(plugin, params);
  if (plugin.kind() == GANNET_KIND_SCHEDULER) what = scheduled(plugin, params);
  return formatted("{}: {}", plugin::provided_name(*plugin.descriptor), what);
}

}  // namespace gannet::sdk_tests
