// Checks for a plugin of any kind: that it leaves the process as it was, checks its params, and
// leaves nothing behind.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "kit/comm/ranks_of.h"
#include "kit/growth.h"
#include "kit/host.h"
#include "kit/object.h"
#include "kit/process_check.h"
#include "kit/relay.h"
#include "kit/relay_fault.h"
#include "plugin/schema.h"

namespace gannet::kit {
namespace {

// A Comm, a tier or an accelerator may have threads; an optimizer and a scheduler use the host's.
bool may_have_threads(gannet_kind kind) { return kind != GANNET_KIND_OPTIMIZER && kind != GANNET_KIND_SCHEDULER; }

// A missing device or driver is not a failure.
void require_made(const CallOutcome& outcome) {
  require_explained("create", outcome);
  if (outcome.status == GANNET_UNAVAILABLE) throw SkippedCheck(formatted("it is not to be had here: {}", outcome.message));
  require_ok("create", outcome);
}

// A value of the spec's type at a limit of its range, or just outside it.
struct ParamLimit {
  const gannet_param_spec* spec;
  double value;
  bool is_legal;
};

std::vector<ParamLimit> limits_of(const gannet_descriptor& descriptor) {
  std::vector<ParamLimit> limits;
  for (const gannet_param_spec* spec : plugin::specs_of(descriptor)) {
    const bool is_integer = spec->type == GANNET_PARAM_INT || spec->type == GANNET_PARAM_INT_LIST;
    if (!is_integer && spec->type != GANNET_PARAM_FLOAT && spec->type != GANNET_PARAM_FLOAT_LIST) continue;
    const auto beside = [&](double limit, double direction) {
      return is_integer ? limit + direction : std::nextafter(limit, direction * INFINITY);
    };
    if (spec->flags & GANNET_PARAM_HAS_MIN) {
      const bool is_open = spec->flags & GANNET_PARAM_MIN_EXCLUSIVE;
      limits.push_back({spec, is_open ? beside(spec->min, 1) : spec->min, true});
      limits.push_back({spec, is_open ? spec->min : beside(spec->min, -1), false});
    }
    if (spec->flags & GANNET_PARAM_HAS_MAX) {
      const bool is_open = spec->flags & GANNET_PARAM_MAX_EXCLUSIVE;
      limits.push_back({spec, is_open ? beside(spec->max, -1) : spec->max, true});
      limits.push_back({spec, is_open ? spec->max : beside(spec->max, 1), false});
    }
  }
  return limits;
}

Value value_of(const gannet_param_spec& spec, double number) {
  if (spec.type == GANNET_PARAM_INT) return static_cast<int64_t>(number);
  if (spec.type == GANNET_PARAM_FLOAT) return number;
  if (spec.type == GANNET_PARAM_INT_LIST) return List(std::max<size_t>(spec.length, 1), Value(static_cast<int64_t>(number)));
  return List(std::max<size_t>(spec.length, 1), Value(number));
}

void require_refused(const Subject& subject, const Dict& params, const std::string& what) {
  set_config(what);
  try {
    plugin::parse_params(*subject.plugin, params, {});
  } catch (const Error& error) {
    return;
  }
  throw CheckFailure(formatted("{} is accepted", what), "params", "the schema refuses it");
}

// Requires that the object is created, or that the plugin explains why not: "nesterov
// needs a momentum".
void require_answer(const Subject& subject, const Dict& params, const std::string& what) {
  set_config(what);
  const Host host;
  const auto parsed = plugin::parse_params(*subject.plugin, params, {});
  CallOutcome outcome;
  const PluginObject object(*subject.plugin, parsed.view(), host.table(), outcome);
  require_explained("create", outcome);
  if (outcome.status == GANNET_INTERNAL)
    throw CheckFailure(formatted("create blames itself (GANNET_INTERNAL) for {}: {}", what, outcome.message), "params", "",
                       "declare a narrower limit, or refuse it with GANNET_INVALID_ARGUMENT");
}

void take_params(Subject& subject) {
  const auto with = [&](const char* name, Value value) {
    Dict params = subject.params;
    params[name] = std::move(value);
    return params;
  };
  require_refused(subject, with("gannet_kit_no_such_param", 1), "a param that is not declared");
  for (const gannet_param_spec* spec : plugin::specs_of(*subject.plugin->descriptor)) {
    const std::string name = formatted("'{}'", spec->name);
    require_refused(subject, with(spec->name, Dict{{"a", 1}}), formatted("a dictionary as {}", name));
    if (spec->type != GANNET_PARAM_STRING && (spec->type != GANNET_PARAM_STRING_LIST || spec->choices))
      require_refused(subject, with(spec->name, "gannet-kit-text"), formatted("a text as {}", name));
    if (spec->type == GANNET_PARAM_BOOL)
      for (const bool value : {false, true}) require_answer(subject, with(spec->name, value), formatted("{} = {}", name, value));
    if ((spec->type == GANNET_PARAM_STRING || (spec->type == GANNET_PARAM_STRING_LIST && spec->length <= 1)) && spec->choices)
      for (const auto& choice : split(spec->choices, '|'))
        require_answer(subject, with(spec->name, choice), formatted("{} = \"{}\"", name, choice));
    if (spec->flags & GANNET_PARAM_NULLABLE) require_answer(subject, with(spec->name, nullptr), formatted("{} = null", name));
    if (spec->type >= GANNET_PARAM_FLOAT_LIST && spec->length == 0)
      require_answer(subject, with(spec->name, List()), formatted("{} = []", name));
  }
  for (const ParamLimit& limit : limits_of(*subject.plugin->descriptor)) {
    const std::string what = formatted("'{}' = {}", limit.spec->name, Value(limit.value).to_json());
    if (limit.is_legal)
      require_answer(subject, with(limit.spec->name, value_of(*limit.spec, limit.value)), what);
    else
      require_refused(subject, with(limit.spec->name, value_of(*limit.spec, limit.value)), what);
  }
}

// Every error message, terminating zero included, must fit the host's buffer. The failing calls are
// taken from other checks, which report what else is wrong with them.
void fit_sentences(Subject& subject) {
  const gannet_kind kind = subject.plugin->kind();
  void (*const fail_on_purpose)(Subject&) = kind == GANNET_KIND_OPTIMIZER ? fail_optimizer
                                            : kind == GANNET_KIND_COMM    ? fail_comm
                                            : kind == GANNET_KIND_OFFLOAD ? fail_offload
                                                                          : nullptr;
  for (const uint64_t capacity : {uint64_t{24}, uint64_t{2}, uint64_t{1}}) {
    const RelayScope scope({.error_capacity = capacity});
    for (const auto function : {&take_params, fail_on_purpose}) {
      if (!function) continue;
      try {
        function(subject);
      } catch (const CheckFailure&) {
      } catch (const Error&) {
      }
      throw_kept_fault();
    }
  }
}

void leave_nothing(Subject& subject) {
  const Host host;
  const auto params = subject.parsed();
  const int times = may_have_threads(subject.plugin->kind()) ? 100 : 1000;
  require_no_growth(
      [&] {
        CallOutcome outcome;
        const PluginObject object(*subject.plugin, params.view(), host.table(), outcome);
        // A Comm may need the device that the kit does not have.
        if (outcome.status == GANNET_UNSUPPORTED && subject.plugin->kind() == GANNET_KIND_COMM) require_host_memory(subject);
        require_made(outcome);
      },
      times, formatted("{} objects created and destroyed", times));
}

}  // namespace

std::vector<Check> common_checks() {
  return {{"params",
           "every param is taken as it is declared: at each limit the object is made or refused with a sentence, beyond "
           "it the schema refuses",
           "declare the limits (at_least, below ...) and refuse the rest with a sentence", 60, take_params},
          {"sentences", "a failure writes at most gannet_error::capacity bytes, the final 0 among them",
           "cut the text (snprintf does)", 120, fit_sentences},
          {"leaves-nothing", "create and destroy give back all memory, files, threads and mappings",
           "free in destroy what create made; AddressSanitizer names the line (docs/plugin_check.md)", 60, leave_nothing}};
}

Check process_check() {
  return {"process-untouched",
          "opening the file and every call leave the process as it was: floating-point environment, locale, working directory, "
          "umask, signals, environment variables, processors, output and child processes; of an optimizer and a schedule also "
          "threads and open files",
          "undo it before the call returns; print by gannet_host::log, compute in gannet_host::parallel_for, and compile without "
          "-ffast-math",
          60, leave_process_alone};
}

}  // namespace gannet::kit
