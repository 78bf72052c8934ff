#include "kit/run.h"

#include <gannet/error.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>

#include "base/format.h"
#include "base/text.h"
#include "interfaces/host.h"
#include "interfaces/scheduler.h"
#include "kit/check.h"
#include "kit/child.h"
#include "kit/comm/device.h"
#include "kit/comm/launched.h"
#include "kit/exclusions.h"
#include "kit/host.h"
#include "kit/json.h"
#include "kit/object.h"
#include "kit/place.h"
#include "kit/process_state.h"
#include "kit/relay.h"
#include "kit/relay_fault.h"
#include "kit/report.h"
#include "plugin/inside.h"
#include "plugin/note.h"
#include "plugin/open.h"
#include "plugin/schema.h"

namespace gannet::kit {

std::vector<Check> checks_of(gannet_kind kind) {
  std::vector<Check> checks = common_checks();
  std::vector<Check> own = kind == GANNET_KIND_OPTIMIZER   ? optimizer_checks()
                           : kind == GANNET_KIND_SCHEDULER ? scheduler_checks()
                           : kind == GANNET_KIND_OFFLOAD   ? offload_checks()
                           : kind == GANNET_KIND_COMM      ? comm_checks()
                                                           : accelerator_checks();
  checks.insert(checks.end(), own.begin(), own.end());
  checks.push_back(process_check());
  return checks;
}

namespace {

constexpr const char* kHandshake = "handshake";
constexpr int kLongest = 3600;

// Reads what can be known about the plugin file at `path` without running its code. Throws
// Error(kNotFound) if there is no such file.
plugin::Candidate candidate_of(const std::string& path) {
  std::error_code failed;
  const auto real = std::filesystem::canonical(path, failed);
  if (failed) throw Error(ErrorCode::kNotFound, formatted("there is no plugin file '{}': {}", printable(path), failed.message()));
  // Also accepts the pinned tier: the loader finds its LibTorch, or reports what is missing.
  return plugin::read_candidate(real.string(), plugin::Fingerprint::kAny);
}

Dict dict_of(const std::string& json, const char* option) {
  if (json.empty()) return {};
  try {
    return parse_json(json).as_dict();
  } catch (const std::exception&) {
    throw Error(ErrorCode::kArgument, formatted("{} is no JSON dictionary: {}", option, printable(json)),
                formatted("write it as in the config: {} '{{\"lr\": 0.01}}'", option));
  }
}

struct ReportedPlugin {  // what a child reports about an opened plugin
  std::string name, provided;
  gannet_kind kind = GANNET_KIND_OPTIMIZER;
};

// Runs in a child process, because opening a file runs its code.
CheckResult shake_hands(const plugin::Candidate& candidate, std::vector<ReportedPlugin>& plugins) {
  CheckResult result{.check = kHandshake};
  const ChildAnswer answer = ask_child(
      [&] {
        List all;
        try {
          for (const plugin::Plugin* each : plugin::open(candidate))
            all.push_back(Dict{
                {"name", each->name()}, {"provided", plugin::provided_name(*each->descriptor)}, {"kind", int64_t{each->kind()}}});
        } catch (const Error& error) {
          return Value(Dict{{"error", error.message()}, {"next", error.next_step()}}).to_json();
        }
        return Value(Dict{{"plugins", std::move(all)}}).to_json();
      },
      std::chrono::seconds(30));
  result.seconds = answer.seconds;
  const Value told = answer.failure.empty() ? parse_json(answer.text) : Value(Dict{{"error", answer.failure}});
  if (const Value* error = told.as_dict().find("error")) {
    if (candidate.tier == GANNET_TIER_PINNED && error->as_string().ends_with("which is not found"))
      throw Error(
          ErrorCode::kNotFound,
          formatted("{}; it is of the pinned tier, and is checked with the LibTorch that it was built for ({})",
                    error->as_string(), printable(candidate.fingerprint)),
          "name the folder of that LibTorch's libraries: LD_LIBRARY_PATH=/path/to/libtorch/lib gannet plugins check FILE");
    result.verdict = Verdict::kFailed;
    result.expected = "the loader opens the file: note, one exported symbol, table, functions and params as the contract says";
    result.found = error->as_string();
    const Value* next = told.as_dict().find("next");
    result.to_do = next && !next->as_string().empty() ? next->as_string()
                   : answer.failure.empty()           ? "build it with gannet_add_plugin() and GANNET_PLUGINS"
                                            : "a static object of the plugin must not throw, exit or wait in its constructor";
    return result;
  }
  for (const Value& each : told.at("plugins").as_list())
    plugins.push_back(
        {each.at("name").as_string(), each.at("provided").as_string(), static_cast<gannet_kind>(each.at("kind").as_int())});
  return result;
}

const plugin::Plugin* find(const plugin::Candidate& candidate, const std::string& provided, gannet_kind kind) {
  const plugin::Plugin* of_kind = nullptr;
  for (const plugin::Plugin* each : plugin::open(candidate)) {
    if (plugin::provided_name(*each->descriptor) == provided) return each;
    if (each->kind() == kind && !of_kind) of_kind = each;
  }
  return of_kind;
}

struct CheckPlan {
  const CheckOptions& options;
  plugin::Candidate file, reference, accelerator;
  Dict params, reference_params;
};

// The child's verdict on a check, a JSON dictionary: "{}" if it passed, otherwise the failure or the reason for skipping.
std::string verdict_of(const CheckPlan& plan, const ReportedPlugin& known, const Check& check) {
  const auto failed = [](const CheckFailure& failure) {
    return Value(Dict{{"found", failure.found},
                      {"where", failure.where.empty() ? text_of(place()) : failure.where},
                      {"expected", failure.expected},
                      {"to_do", failure.to_do}})
        .to_json();
  };
  try {
    capture_log();
    Subject subject;
    const ProcessState unopened = ProcessState::now(process_scope(known.kind));
    const plugin::Plugin* const opened = find(plan.file, known.provided, known.kind);
    subject.opening = plugin::restored_environments() > 0
                          ? "it changed the floating-point environment (-ffast-math does so in a shared object's start-up code)"
                          : ProcessState::now(process_scope(known.kind)).change_since(unopened);
    subject.plugin = relayed(opened);
    subject.of_file = plugin::open(plan.file);
    if (known.kind == GANNET_KIND_COMM)
      choose_device(subject,
                    plan.options.accelerator.empty() ? std::vector<const plugin::Plugin*>() : plugin::open(plan.accelerator));
    subject.least_minor = plan.file.required_features & GANNET_FEATURE_2_1 ? 1 : 0;
    subject.params = plan.params;
    subject.tolerance = plan.options.tolerance;
    if (!plan.options.reference.empty()) {
      subject.reference = find(plan.reference, known.provided, known.kind);
      subject.reference_params = plan.reference_params;
    }
    check.run(subject);
    throw_kept_fault();
  } catch (const CheckFailure& failure) {
    return failed(failure);
  } catch (const SkippedCheck& skipped) {
    return Value(Dict{{"skipped", skipped.reason}}).to_json();
  } catch (const std::exception& error) {  // from a call that must succeed
    const auto* ours = dynamic_cast<const Error*>(&error);
    return failed({ours ? ours->message() : std::string(error.what())});
  }
  return "{}";
}

CheckResult run(const CheckPlan& plan, const ReportedPlugin& known, const Check& check) {
  CheckResult result{.check = check.name, .expected = check.expected, .to_do = check.to_do};
  const int seconds = plan.options.limit_seconds > 0 ? plan.options.limit_seconds : check.seconds;
  const ChildAnswer answer = ask_child([&] { return verdict_of(plan, known, check); }, std::chrono::seconds(seconds));
  result.seconds = answer.seconds;
  if (!answer.failure.empty()) {
    result.verdict = Verdict::kFailed;
    result.found = answer.failure;
    if (!answer.printed.empty()) result.found += formatted("; it printed: {}", answer.printed);
    result.where = answer.where;
    return result;
  }
  const Value told = parse_json(answer.text);
  if (const Value* skipped = told.as_dict().find("skipped")) {
    result.verdict = Verdict::kSkipped;
    result.reason = skipped->as_string();
  } else if (told.as_dict().find("found")) {
    result.verdict = Verdict::kFailed;
    result.found = told.at("found").as_string();
    result.where = told.at("where").as_string();
    if (const std::string& own = told.at("expected").as_string(); !own.empty()) result.expected = own;
    if (const std::string& own = told.at("to_do").as_string(); !own.empty()) result.to_do = own;
  }
  return result;
}

// Reports each cause once: a plugin that crashes in `supports` fails every check there.
class KnownCauses {
 public:
  void look_up(CheckResult& result) {
    if (result.verdict != Verdict::kFailed) return;
    const size_t begin = result.where.find(", in "), end = begin == std::string::npos ? begin : result.where.find(',', begin + 1);
    const std::string call = begin == std::string::npos ? "" : result.where.substr(begin, end - begin);
    const auto [known, is_new] = first_.try_emplace(result.found + call, result.check);
    if (is_new) return;
    result.verdict = Verdict::kSame;
    result.reason = formatted("it fails as '{}' does", known->second);
  }

 private:
  std::map<std::string, std::string> first_;
};

// For a plugin that works on device memory, most checks are skipped for the same reason. One child
// finds these, so that not every check needs a child that opens the file again. Returns the
// reasons by check; none if the child failed.
std::map<std::string, std::string> skipped_together(const CheckPlan& plan, const ReportedPlugin& known) {
  const ChildAnswer answer = ask_child(
      [&] {
        Dict reasons;
        if (!works_on_host(*find(plan.file, known.provided, known.kind)))
          for (const Check& check : checks_of(known.kind))
            if (const Value told = parse_json(verdict_of(plan, known, check)); told.as_dict().find("skipped"))
              reasons[check.name] = told.at("skipped");
        return Value(std::move(reasons)).to_json();
      },
      std::chrono::seconds(30));
  std::map<std::string, std::string> reasons;
  if (!answer.failure.empty()) return reasons;
  const Value told = parse_json(answer.text);
  for (const auto& [check, reason] : told.as_dict().entries()) reasons[check] = reason.as_string();
  return reasons;
}

// Refuses a schedule that lacks only the length of the run: every check would fail on it in the
// same way.
void require_length(const plugin::Plugin& plugin, const Dict& params) {
  if (plugin.kind() != GANNET_KIND_SCHEDULER) return;
  constexpr uint64_t kSomeLength = 1'000'000;
  const Host host;
  const auto first_value = [&](uint64_t length) {
    const Scheduler made(plugin, plugin::parse_params(plugin, params, [](const std::string&) { return ""; }), host, 1, length);
    made.at(0, 0, {}, made.first_state());
  };
  std::string wrong;
  try {
    return first_value(0);
  } catch (const Error& error) {
    wrong = error.message();
  }
  try {
    first_value(kSomeLength);
  } catch (const Error&) {
    return;  // it lacks something else, or is broken, which the checks report
  }
  std::string name = "total_num_steps";
  for (const auto* spec : plugin::specs_of(*plugin.descriptor))
    if (std::strstr(spec->name, "total") && std::strstr(spec->name, "steps")) name = spec->name;
  throw Error(ErrorCode::kConfig, formatted("the schedule needs the length of the run: {}", wrong),
              formatted("give it one, for example --params '{{\"{}\": 1000}}'", name));
}

// Invalid params are the user's mistake, not the plugin's.
void require_params(const CheckPlan& plan, const ReportedPlugin& known) {
  const ChildAnswer answer = ask_child(
      [&]() -> std::string {
        try {
          const plugin::Plugin& plugin = *find(plan.file, known.provided, known.kind);
          plugin::parse_params(plugin, plan.params, [](const std::string&) { return ""; });
          require_length(plugin, plan.params);
        } catch (const Error& error) {
          return formatted("{}\n{}", error.message(), error.next_step());
        }
        return "";
      },
      std::chrono::seconds(kLongest));
  if (answer.text.empty()) return;
  const size_t line = answer.text.find('\n');
  throw Error(ErrorCode::kConfig, formatted("--params of {}: {}", known.provided, answer.text.substr(0, line)),
              answer.text.find("--params", line) != std::string::npos
                  ? answer.text.substr(line + 1)
                  : formatted("{}; as --params '{{\"name\": value}}'", answer.text.substr(line + 1)));
}

}  // namespace

int check_file(const CheckOptions& options) {
  if (!options.launched.empty()) {
    be_launched(options.launched);
    // The ranks' stores are numbered from 1 in each check's process.
    if (options.checks.size() != 1)
      throw Error(ErrorCode::kArgument, formatted("--launched and {} checks", options.checks.size()),
                  "name one with --check, and start the ranks again for the next one");
  }
  CheckPlan plan{options, candidate_of(options.file),          {},
                 {},      dict_of(options.params, "--params"), dict_of(options.reference_params, "--reference-params")};
  if (!options.reference.empty()) plan.reference = candidate_of(options.reference);
  if (!options.accelerator.empty()) plan.accelerator = candidate_of(options.accelerator);
  std::vector<PluginReport> reports;
  const auto print = [&](const std::string& text) {
    if (!options.json) std::cout << text << std::flush;
  };
  print(formatted("{}\n", printable(plan.file.file)));
  std::vector<ReportedPlugin> plugins;
  reports.push_back({"file", {shake_hands(plan.file, plugins)}});
  print(text_of(reports.back().results[0]));

  std::vector<std::string> known_checks = {kHandshake};
  for (const ReportedPlugin& known : plugins)
    for (const Check& check : checks_of(known.kind)) known_checks.push_back(check.name);
  const auto excluded = read_exclusions(options.exclusions, known_checks);
  for (const std::string& wanted : options.checks)
    if (std::find(known_checks.begin(), known_checks.end(), wanted) == known_checks.end() && !plugins.empty())
      throw Error(ErrorCode::kArgument, formatted("--check '{}' is no check of these plugins{}", printable(wanted),
                                                  did_you_mean(wanted, known_checks)));
  bool is_any = options.plugin.empty();
  for (const ReportedPlugin& known : plugins) {
    if (!options.plugin.empty() && lower(options.plugin) != lower(known.name) && lower(options.plugin) != known.provided)
      continue;
    is_any = true;
    require_params(plan, known);
    print(formatted("\n{}\n", known.provided));
    reports.push_back({known.provided, {}});
    KnownCauses causes;
    const auto skipped =
        known.kind == GANNET_KIND_OPTIMIZER ? skipped_together(plan, known) : std::map<std::string, std::string>();
    for (const Check& check : checks_of(known.kind)) {
      const auto is_this = [&](const std::string& wanted) { return wanted == check.name; };
      if (!options.checks.empty() && std::none_of(options.checks.begin(), options.checks.end(), is_this)) continue;
      const auto reason = excluded.find(check.name);
      const auto not_here = skipped.find(check.name);
      CheckResult result =
          reason != excluded.end()    ? CheckResult{.check = check.name, .verdict = Verdict::kExcluded, .reason = reason->second}
          : not_here != skipped.end() ? CheckResult{.check = check.name, .verdict = Verdict::kSkipped, .reason = not_here->second}
                                      : run(plan, known, check);
      causes.look_up(result);
      print(text_of(result));
      reports.back().results.push_back(std::move(result));
    }
  }
  if (!is_any && !plugins.empty())
    throw Error(ErrorCode::kArgument, formatted("{} has no plugin '{}'", printable(plan.file.file), printable(options.plugin)));
  if (options.json)
    std::cout << json_of(plan.file.file, reports) << '\n';
  else
    print(formatted("\n{}", summary_of(reports)));
  return count_of(reports, Verdict::kFailed) > 0 ? 1 : 0;
}

}  // namespace gannet::kit
