#include "doctor/config_check.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/format.h"
#include "base/text.h"
#include "config/document.h"
#include "config/mistakes.h"
#include "config/param_groups.h"
#include "config/resolve.h"
#include "config/status.h"
#include "device/accelerator.h"
#include "interfaces/offload.h"
#include "interfaces/optimizer.h"
#include "interfaces/scheduler.h"
#include "plugin/named_plugins.h"
#include "plugin/schema.h"

namespace gannet::doctor {
namespace {

using config::attempt;
using config::Document;

bool has_auto(const Dict& params) {
  const auto is_auto = [](const auto& entry) { return entry.second == Value("auto"); };
  return std::any_of(params.entries().begin(), params.entries().end(), is_auto);
}

// Opens the plugins that `initialize` would open, in the same order, and continues where
// `initialize` would stop.
class PluginCheck {
 public:
  PluginCheck(const Document& document, ConfigCheck& check, const config::Settings* settings)
      : document_(document), given_(config::settings_of(document)), check_(check), settings_(settings) {}

  void run() {
    if (!attempt(&check_.mistakes, [&] { registry_ = std::make_unique<plugin::Registry>(plugin_places(given_)); })) return;
    attempt(&check_.mistakes, [&] { accelerator(); });
    attempt(&check_.mistakes, [&] { comm(); });
    for (const char* block : {"offload_optimizer", "offload_param"}) attempt(&check_.mistakes, [&] { offload(block); });
    attempt(&check_.mistakes, [&] { optimizer(); });
    attempt(&check_.mistakes, [&] { scheduler(); });
  }

 private:
  // Checks the params against the schema; nullopt if one is wrong, or is an "auto" that is reported
  // elsewhere.
  std::optional<plugin::ParamSet> params(const plugin::Plugin& plugin, const std::string& block, const Dict& given) {
    if (has_auto(given)) return std::nullopt;
    const auto where = position_in(document_, block);
    const std::vector<Error> mistakes = plugin::mistakes_in(plugin, given, where);
    check_.mistakes.insert(check_.mistakes.end(), mistakes.begin(), mistakes.end());
    return mistakes.empty() ? std::optional(plugin::parse_params(plugin, given, where)) : std::nullopt;
  }

  // Reports params that the schema accepts one by one but the plugin rejects together.
  template <typename Make>
  void make(const std::string& block, Make&& make) {
    try {
      make();
    } catch (const Error& error) {
      const std::string where = formatted("{}: ", document_.origin_of(formatted("/{}/params", block)).to_string());
      if (error.code() == ErrorCode::kUnavailable)
        check_.notices.push_back(where + error.message());
      else
        throw Error(error.code(), where + error.message(), error.next_step().empty() ? "correct the params" : error.next_step());
    }
  }

  // Returns whether the device is usable on this machine.
  bool open(const std::string& name) {
    const plugin::Plugin& plugin = require(*registry_, GANNET_KIND_ACCELERATOR, name, "", document_, "accelerator");
    device_ = lower(name);
    auto set = params(plugin, "accelerator", given_.accelerator.params);
    if (!set) return false;
    accelerator_ = std::make_unique<Accelerator>(plugin, std::move(*set), host_);
    device_ = accelerator_->plugin_device();
    return true;
  }

  void accelerator() {
    const std::string wanted = given_.accelerator.type;
    const bool is_auto = lower(wanted) == "auto";
    if (is_auto)
      for (const plugin::Plugin* best : registry_->accelerators_best_first()) try {
          if (open(best->name())) return;
        } catch (const Error&) {
          // Not usable on this machine: try the next one.
        }
    try {
      open(is_auto ? "cpu" : wanted);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnavailable && error.code() != ErrorCode::kUnsupported) throw;
      check_.notices.push_back(formatted("accelerator '{}' is not usable on this machine: {}", wanted, error.message()));
      if (!has_comm_for(lower(wanted)))
        check_.notices.push_back(formatted(
            "accelerator '{}' trains only in one process: no Comm plugin here moves its memory between several", wanted));
    }
  }

  // Reads only the files' ELF notes: a plugin for an absent device may fail to load.
  bool has_comm_for(const std::string& device) const {
    const auto& candidates = registry_->candidates();
    return std::any_of(candidates.begin(), candidates.end(), [&](const plugin::Candidate& candidate) {
      return candidate.rejected.empty() &&
             std::any_of(candidate.provides.begin(), candidate.provides.end(), [&](const std::string& provided) {
               return provided.starts_with("comm/") && provided.ends_with("@" + device);
             });
    });
  }

  void comm() {
    if (const std::string& host = given_.comm_host; lower(host) != "auto") {
      const plugin::Plugin& plugin = require(*registry_, GANNET_KIND_COMM, host, "", document_, "comm", "host");
      if (!plugin.device().empty() && lower(plugin.device()) != "cpu")
        check_.mistakes.emplace_back(
            ErrorCode::kConfig,
            formatted("{}: comm plugin '{}' moves memory of device '{}', and numbers and strings are in the host's",
                      document_.origin_of("/comm/host").to_string(), host, plugin.device()),
            "name one that serves the host's memory, as \"gloo\"");
    }
    std::string name = given_.comm.type;
    if (lower(name) == "auto") name = check_.world_size == 1 ? "local" : accelerator_ ? accelerator_->default_comm() : "";
    if (name.empty()) return;  // only the accelerator can name its comm, and it is not usable here
    const plugin::Plugin& plugin = require(*registry_, GANNET_KIND_COMM, name, "", document_, "comm");
    params(plugin, "comm", given_.comm.params);
  }

  void offload(const std::string& block) {
    if (!settings_) return;
    const config::Zero& zero = settings_->zero;
    const auto& to =
        block == "offload_param" ? static_cast<const config::OffloadTarget&>(zero.offload_param) : zero.offload_optimizer;
    if (!to) return;
    const std::string place = formatted("zero_optimization/{}", block);
    const plugin::Plugin& plugin = require(*registry_, GANNET_KIND_OFFLOAD, to.device, "cpu", document_, place, "device");
    const std::vector<Error> mistakes =
        plugin::mistakes_in(plugin, known_params(plugin, to.params), position_in_offload(document_, place));
    check_.mistakes.insert(check_.mistakes.end(), mistakes.begin(), mistakes.end());
  }

  void optimizer() {
    const std::string& type = given_.optimizer.type;
    if (type.empty()) return;  // none is given, or it is an "auto" that is reported elsewhere
    const bool on_host =
        settings_ && settings_->zero.offload_optimizer && accelerator_ && accelerator_->has(GANNET_ACCELERATOR_SEPARATE_MEMORY);
    const std::string device = on_host ? "cpu" : device_;
    const plugin::Plugin& plugin = require(*registry_, GANNET_KIND_OPTIMIZER, type, device, document_, "optimizer");
    auto set = params(plugin, "optimizer", given_.optimizer.params);
    const bool is_made = lower(plugin.device()) == "cpu";
    if (set && is_made) make("optimizer", [&] { Optimizer(plugin, std::move(*set), host_); });
    const auto groups = groups_of_names();
    for (size_t g = 0; g < groups.size(); ++g) param_group(plugin, g, groups[g], is_made);
  }

  // Faults within the config's parameter groups are reported elsewhere. Only the program knows
  // which parameters the patterns match.
  std::vector<config::ParamGroup> groups_of_names() const {
    try {
      return config::param_groups_of(given_.optimizer.param_groups, [](const std::string&) { return std::string(); });
    } catch (const Error&) {
      return {};
    }
  }

  void param_group(const plugin::Plugin& plugin, size_t number, const config::ParamGroup& group, bool is_made) {
    const Dict all = config::with_overrides(given_.optimizer.params, group.overrides);
    if (has_auto(all)) return;
    const auto where = config::position_in_param_group(document_, number, group.overrides);
    const auto of_all = plugin::mistakes_in(plugin, given_.optimizer.params, position_in(document_, "optimizer"));
    const auto is_known = [&](const Error& mistake) {
      return std::any_of(of_all.begin(), of_all.end(),
                         [&](const Error& one) { return std::string(one.what()) == mistake.what(); });
    };
    const auto mistakes = plugin::mistakes_in(plugin, all, where);
    for (const Error& mistake : mistakes)
      if (!is_known(mistake)) check_.mistakes.push_back(mistake);
    if (!mistakes.empty() || !is_made) return;
    make("optimizer", [&] { Optimizer(plugin, plugin::parse_params(plugin, all, where), host_); });
  }

  void scheduler() {
    const std::string& type = given_.scheduler.type;
    if (type.empty()) return;
    const plugin::Plugin& plugin = require(*registry_, GANNET_KIND_SCHEDULER, type, device_, document_, "scheduler");
    if (params(plugin, "scheduler", given_.scheduler.params))
      make("scheduler", [&] { schedule(plugin, static_cast<uint64_t>(given_.total_steps)); });
  }

  // A schedule that lacks only the length of the run is accepted: the Trainer knows that length
  // from its data.
  void schedule(const plugin::Plugin& plugin, uint64_t total_steps) {
    constexpr uint64_t kSomeLength = 1'000'000;
    const std::optional<Error> wrong = first_value(plugin, total_steps);
    if (!wrong) return;
    if (total_steps > 0 || first_value(plugin, kSomeLength)) throw Error(*wrong);
    check_.notices.push_back(
        formatted("{}: scheduler '{}' needs the number of updates of the run: the Trainer gives it from its data; for another "
                  "program set gannet.total_steps",
                  document_.origin_of("/scheduler").to_string(), given_.scheduler.type));
  }

  // The schedule's error for its params or for the first update, since some schedules detect what
  // they lack only at the first update.
  std::optional<Error> first_value(const plugin::Plugin& plugin, uint64_t total_steps) const {
    auto set = plugin::parse_params(plugin, given_.scheduler.params, position_in(document_, "scheduler"));
    const auto groups = static_cast<uint32_t>(1 + groups_of_names().size());
    try {
      const Scheduler made(plugin, std::move(set), host_, groups, total_steps);
      made.at(0, 0, {}, made.first_state());
      return std::nullopt;
    } catch (const Error& error) {
      return error;
    }
  }

  const Document& document_;
  const config::Settings given_;  // only the values that the config gives, not resolved
  ConfigCheck& check_;
  const config::Settings* settings_;  // null if the config could not be resolved
  const Host host_;
  std::unique_ptr<plugin::Registry> registry_;
  std::unique_ptr<Accelerator> accelerator_;  // null if it is not usable
  std::string device_;                        // the device of optimizers and schedules; "": any
};

}  // namespace

int64_t world_size_of(const ConfigCheckOptions& options, const Document& document) {
  if (options.world_size > 0) return options.world_size;
  if (const char* text = std::getenv("WORLD_SIZE"))
    if (const long long size = std::atoll(text); size > 0) return size;
  return config::implied_ranks(document);
}

void check_plugins(const Document& document, const config::Settings& settings, ConfigCheck& found) {
  PluginCheck(document, found, &settings).run();
}

ConfigCheck check_config(const std::string& file, const ConfigCheckOptions& options) {
  ConfigCheck check;
  std::shared_ptr<const Document> document = config::read_file(file, check.mistakes);
  if (!options.overrides.empty()) document = document->merged(options.overrides, "--set");
  check.world_size = world_size_of(options, *document);
  check.is_partial = !check.mistakes.empty();
  std::optional<config::Settings> settings;
  if (check.is_partial) {
    check.notices = document->notices();
    config::check_status(*document, &check.mistakes);
  } else {
    const config::ResolvedConfig resolved = config::resolve(*document, check.world_size, check.mistakes);
    check.notices = resolved.notices;
    if (check.mistakes.empty()) settings = resolved.settings;
  }
  if (options.with_plugins) PluginCheck(*document, check, settings ? &*settings : nullptr).run();
  return check;
}

}  // namespace gannet::doctor
