// gannet schedule CONFIG [--steps N]: the learning rate of each step under the config's schedule, as
// CSV.
#include <gannet/config.h>
#include <gannet/error.h>

#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>

#include "base/format.h"
#include "cli/commands.h"
#include "config/document.h"
#include "config/effective.h"
#include "config/param_groups.h"
#include "config/resolve.h"
#include "interfaces/scheduler.h"
#include "plugin/named_plugins.h"

namespace gannet::cli {
namespace {

struct ScheduleArguments {
  std::string config;
  std::optional<uint64_t> steps;
  int64_t world_size = 0;  // 0: implied by the batch sizes
};

// A schedule's rates do not depend on batch sizes, so a config that leaves those to another
// program is accepted.
std::shared_ptr<const config::Document> with_batch_size(const std::shared_ptr<const config::Document>& document) {
  const config::GivenBatch given = config::given_batch(*document);
  if (given.train || given.micro) return document;
  return document->merged(Dict{{"train_micro_batch_size_per_gpu", 1}}, "gannet schedule");
}

plugin::ParamSet params_of(const plugin::Plugin& plugin, const config::PluginChoice& choice, const std::string& block,
                           const config::Document& document) {
  return plugin::parse_params(plugin, choice.params, [&](const std::string& member) {
    return document.origin_of(formatted("/{}/params/{}", block, member)).to_string();
  });
}

// The lr that the config gives each parameter group, if it names an optimizer with an lr.
std::vector<std::optional<double>> group_lrs(plugin::Registry& registry, const config::Settings& settings,
                                             const config::Document& document) {
  const auto groups = config::param_groups_of(settings.optimizer.param_groups,
                                              [&](const std::string& path) { return config::where(document, path); });
  std::vector<std::optional<double>> lrs(groups.size() + 1);
  if (settings.optimizer.type.empty()) return lrs;
  const plugin::Plugin& plugin = registry.require(GANNET_KIND_OPTIMIZER, settings.optimizer.type, "cpu");
  for (size_t g = 0; g < lrs.size(); ++g) {
    const Dict overrides = g > 0 ? groups[g - 1].overrides : Dict();
    const plugin::ParamSet params = plugin::parse_params(plugin, config::with_overrides(settings.optimizer.params, overrides),
                                                         config::position_in_param_group(document, g > 0 ? g - 1 : 0, overrides));
    for (size_t i = 0; i < params.dynamic_roles().size(); ++i)
      if (params.dynamic_roles()[i] == GANNET_ROLE_LEARNING_RATE) lrs[g] = params.dynamic_values()[i];
  }
  return lrs;
}

// The number of updates that the config gives to the run, or to its schedule.
uint64_t updates_of(const config::Settings& settings, const std::string& file) {
  if (settings.total_steps > 0) return static_cast<uint64_t>(settings.total_steps);
  const Value* total = settings.scheduler.params.find("total_num_steps");
  if (total && total->is_int() && total->as_int() > 0) return static_cast<uint64_t>(total->as_int());
  throw Error(ErrorCode::kArgument, formatted("{} does not say how many updates the run has", file),
              "give --steps N, or set gannet.total_steps");
}

void print_schedule(const ScheduleArguments& arguments) {
  const Config config(arguments.config == "-" ? "/dev/stdin" : arguments.config);
  const auto whole = with_batch_size(config.document());
  const config::Document& document = *whole;
  const int64_t ranks = arguments.world_size > 0 ? arguments.world_size : config::implied_ranks(document);
  const config::Settings settings = config::resolve(document, config::data_ranks(document, ranks)).settings;
  const uint64_t steps = arguments.steps ? *arguments.steps : updates_of(settings, arguments.config);
  plugin::Registry registry(plugin_places(settings));
  const std::vector<std::optional<double>> base_lrs = group_lrs(registry, settings, document);

  const Host host;
  std::unique_ptr<Scheduler> scheduler;
  if (!settings.scheduler.type.empty()) {
    const plugin::Plugin& plugin = registry.require(GANNET_KIND_SCHEDULER, settings.scheduler.type);
    scheduler = std::make_unique<Scheduler>(plugin, params_of(plugin, settings.scheduler, "scheduler", document), host,
                                            static_cast<uint32_t>(base_lrs.size()), static_cast<uint64_t>(settings.total_steps));
  }
  if (scheduler && scheduler->needs_metric())
    throw Error(ErrorCode::kConfig,
                formatted("{}: scheduler '{}' follows a number that the program measures, which no config knows",
                          arguments.config, settings.scheduler.type),
                "engine->get_lr() tells its rates while it trains");
  std::vector<std::vector<double>> states;  // by step, if the schedule has state
  auto state_at = [&](uint64_t step) -> const std::vector<double>& {
    if (states.empty()) states.push_back(scheduler->first_state());
    while (states.size() <= step)
      states.push_back(scheduler->advanced(states.size(), std::numeric_limits<double>::quiet_NaN(), states.back()));
    return states[step];
  };
  // Without an optimizer's lr, the rate is known only if it does not depend on that lr, that is, if
  // two different lrs give the same rate.
  auto at = [&](uint64_t step, uint32_t group) {
    const std::optional<double>& base_lr = base_lrs[group];
    const auto with_base = [&](double base) {
      Scheduler::Values own;
      own[GANNET_ROLE_LEARNING_RATE] = base;
      return scheduler ? scheduler->at(step, group, own, state_at(step)) : Scheduler::Values{};
    };
    Scheduler::Values value = with_base(base_lr.value_or(1));
    auto& lr = value[GANNET_ROLE_LEARNING_RATE];
    if (!lr) lr = base_lr;
    if (!lr || (!base_lr && with_base(2)[GANNET_ROLE_LEARNING_RATE] != lr))
      throw Error(ErrorCode::kConfig,
                  formatted("{}: the learning rate of step {} comes from the optimizer, and the config sets none",
                            arguments.config, step),
                  "add an optimizer with params.lr, or the bounds to the scheduler's params");
    return value;
  };
  const bool has_momentum = steps > 0 && at(1, 0)[GANNET_ROLE_BETA1].has_value();  // a resumed schedule sets nothing at step 0
  std::ostringstream rows;                                                         // printed whole or, after an error, not at all
  rows << (has_momentum ? "step,lr,momentum" : "step,lr");
  for (size_t g = 1; g < base_lrs.size(); ++g) rows << ",lr_" << g;  // one column for each of the config's parameter groups
  rows << '\n';
  for (uint64_t step = 0; step < steps; ++step) {
    const Scheduler::Values value = at(step, 0);
    const auto& momentum = value[GANNET_ROLE_BETA1];
    rows << step << ',' << Value(*value[GANNET_ROLE_LEARNING_RATE]).to_json();
    if (has_momentum) rows << ',' << (momentum ? Value(*momentum).to_json() : "");
    for (uint32_t g = 1; g < base_lrs.size(); ++g) rows << ',' << Value(*at(step, g)[GANNET_ROLE_LEARNING_RATE]).to_json();
    rows << '\n';
  }
  std::cout << rows.str();
}

}  // namespace

void add_schedule(CLI::App& app) {
  auto arguments = std::make_shared<ScheduleArguments>();
  CLI::App* command = app.add_subcommand("schedule",
                                         "Print the learning rate (and momentum) of each step as CSV; row 0 is what the first "
                                         "update uses, lr_1 the rate of the first group of "
                                         "optimizer.param_groups.");
  command->add_option("config", arguments->config, "ds_config.json; - reads the standard input")->required();
  command
      ->add_option("--steps", arguments->steps, "number of rows (default: gannet.total_steps or the schedule's total_num_steps)")
      ->type_name("N")
      ->check(CLI::Range(uint64_t{0}, uint64_t{10'000'000}));
  command->add_option("--world-size", arguments->world_size, "number of ranks (default: what the batch sizes imply)")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command->callback([arguments] { print_schedule(*arguments); });
}

}  // namespace gannet::cli
