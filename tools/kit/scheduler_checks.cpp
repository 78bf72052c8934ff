// Checks that a schedule is a pure function of the query, gives finite values, writes the roles
// that it declares, and uses only the base of the queried group.
#include <gannet/error.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>

#include "base/format.h"
#include "interfaces/scheduler.h"
#include "kit/child.h"
#include "kit/object.h"
#include "kit/place.h"
#include "kit/process_check.h"
#include "kit/relay.h"
#include "kit/relay_fault.h"

namespace gannet::kit {
namespace {

using Values = Scheduler::Values;

Values base_of(double rate) {
  Values base;
  base[GANNET_ROLE_LEARNING_RATE] = rate;
  base[GANNET_ROLE_BETA1] = 0.9;
  base[GANNET_ROLE_BETA2] = 0.999;
  base[GANNET_ROLE_MOMENTUM] = 0.9;
  base[GANNET_ROLE_WEIGHT_DECAY] = 0.01;
  return base;
}

// Every step near the beginning, then steps that are increasingly far apart.
std::vector<uint64_t> steps() {
  std::vector<uint64_t> all;
  for (uint64_t step = 0; step < 300; ++step) all.push_back(step);
  for (double step = 300; step < 1e6; step *= 1.05) all.push_back(static_cast<uint64_t>(step));
  all.push_back(999999);
  all.push_back(1000000);
  return all;
}

struct CheckedScheduler {
  explicit CheckedScheduler(const Subject& subject, uint32_t groups = 1, uint64_t total_steps = 0)
      : scheduler(*subject.plugin, subject.parsed(), host, groups, total_steps), groups(groups) {}
  // The object of one of several ranks.
  CheckedScheduler(const Subject& subject, uint32_t rank, uint32_t ranks, uint32_t groups)
      : host(rank, ranks), scheduler(*subject.plugin, subject.parsed(), host, groups, 0), groups(groups) {}
  Values at(uint64_t step, uint32_t group, const Values& base) const {
    const CallScope calling("value", step, formatted("group {} of {}", group, groups));
    return scheduler.at(step, group, base, scheduler.first_state());
  }
  struct RankHost : Host {
    explicit RankHost(uint32_t rank = 0, uint32_t ranks = 1) { set_ranks(rank, ranks); }
  };
  RankHost host;
  Scheduler scheduler;
  uint32_t groups;
};

std::string text_of_values(const Values& values) {
  std::string text;
  for (uint32_t role = 1; role < GANNET_ROLE_COUNT; ++role)
    if (values[role]) text += formatted("{}role {} = {}", text.empty() ? "" : ", ", role, Value(*values[role]).to_json());
  return text.empty() ? "nothing" : text;
}

void require_equal(const Values& found, const Values& expected, uint64_t step, const std::string& when) {
  if (found != expected)
    throw CheckFailure(formatted("{} gives {}, not {}", when, text_of_values(found), text_of_values(expected)),
                       formatted("step {}", step));
}

// The description, which the host reads at the start of a run, must be the same in every process
// and after a resume.
void description(Subject& subject) {
  const auto& api = *interfaces::api_of<gannet_scheduler_api>(*subject.plugin);
  const plugin::ParamSet params = subject.parsed();
  const Host host;
  CallOutcome outcome;
  const PluginObject first(*subject.plugin, params.view(), host.table(), outcome);
  require_ok("create", outcome);
  const PluginObject second(*subject.plugin, params.view(), host.table(), outcome);
  require_ok("create", outcome);
  std::optional<gannet_schedule_description> expected;
  for (const PluginObject* made : {&first, &first, &second}) {
    gannet_schedule_description found{};
    found.struct_size = sizeof(found);
    require_ok("describe", call("describe", *subject.plugin, api.describe, made->self(), &found));
    if (found.struct_size != sizeof(found))
      throw CheckFailure(formatted("it set struct_size from {} to {}", sizeof(found), found.struct_size), "describe",
                         "struct_size is the host's");
    if (expected && std::memcmp(&*expected, &found, sizeof(found)) != 0)
      throw CheckFailure(
          formatted("roles {:#x}, optional {:#x}, {} numbers of state, flags {:#x}; before: {:#x}, {:#x}, {}, {:#x}", found.roles,
                    found.optional_roles, found.state_count, found.flags, expected->roles, expected->optional_roles,
                    expected->state_count, expected->flags),
          made == &first ? "describe, again" : "describe, of a second object");
    expected = found;
  }
}

// Queries an object twice in order, a second one in reverse, and a third one while the first is
// queried with another base.
void pure(Subject& subject) {
  const CheckedScheduler first(subject), second(subject), third(subject);
  const Values base = base_of(0.01);
  std::vector<Values> expected;
  const auto all = steps();
  for (const uint64_t step : all) expected.push_back(first.at(step, 0, base));
  for (size_t i = 0; i < all.size(); ++i) require_equal(first.at(all[i], 0, base), expected[i], all[i], "a second question");
  for (size_t i = all.size(); i-- > 0;)
    require_equal(second.at(all[i], 0, base), expected[i], all[i], "from the last to the first,");
  for (size_t i = 0; i < all.size(); i += 7) {
    first.at(all[i], 0, base_of(5));
    require_equal(third.at(all[i], 0, base), expected[i], all[i], "a third object");
    require_equal(first.at(all[i], 0, base), expected[i], all[i], "after a question with another base,");
  }
  for (const auto& [rank, ranks] : {std::pair{0u, 8u}, std::pair{7u, 8u}}) {
    const CheckedScheduler of_rank(subject, rank, ranks, 1);
    for (size_t i = 0; i < all.size(); ++i)
      require_equal(of_rank.at(all[i], 0, base), expected[i], all[i], formatted("rank {} of {}", rank, ranks));
  }
  // In the next second of the clock, and of time(), which may be some milliseconds late.
  const auto next = std::chrono::ceil<std::chrono::seconds>(std::chrono::system_clock::now());
  std::this_thread::sleep_until(next + std::chrono::milliseconds(20));
  for (size_t i = 0; i < all.size(); ++i)
    require_equal(first.at(all[i], 0, base), expected[i], all[i], "the same question a second later");
}

// Steps beyond 2^32 continue the schedule: they are not those at its beginning again.
void far_steps(Subject& subject) {
  const CheckedScheduler made(subject);
  if (!made.scheduler.first_state().empty()) throw SkippedCheck("its position is in its state");
  const Values base = base_of(0.01);
  constexpr uint64_t kQuestions = 300, kMillion = 1 << 20, kBeyond = uint64_t{1} << 32;
  std::vector<Values> first, later, far;
  for (uint64_t step = 0; step < kQuestions; ++step) {
    first.push_back(made.at(step, 0, base));
    later.push_back(made.at(kMillion + step, 0, base));
    far.push_back(made.at(kBeyond + step, 0, base));
  }
  if (far == first && later != first)
    throw CheckFailure(formatted("steps {} to {} are those at the beginning again", kBeyond, kBeyond + kQuestions - 1),
                       formatted("steps 0 to {}, and from {} on", kQuestions - 1, kBeyond));
  for (const uint64_t step : {kBeyond >> 1, kBeyond, kBeyond << 8}) {
    const auto rate = made.at(step, 0, base)[GANNET_ROLE_LEARNING_RATE];
    if (rate && *rate < 0) throw CheckFailure(formatted("the learning rate is {}", *rate), formatted("step {}", step));
  }
}

struct RoleRange {
  uint32_t role;
  const char* name;
  double most;
};
constexpr double kAny = std::numeric_limits<double>::max();
constexpr RoleRange kRanges[] = {{GANNET_ROLE_LEARNING_RATE, "learning rate", kAny},
                                 {GANNET_ROLE_BETA1, "beta1", 1},
                                 {GANNET_ROLE_BETA2, "beta2", 1},
                                 {GANNET_ROLE_MOMENTUM, "momentum", 1},
                                 {GANNET_ROLE_WEIGHT_DECAY, "weight decay", kAny}};

// Scheduler::at throws for values that are not finite; those out of a role's range are refused here.
void finite(Subject& subject) {
  const CheckedScheduler made(subject);
  for (const double rate : {0.0, 1e-6, 0.01, 10.0})
    for (const uint64_t step : steps())
      for (const auto values = made.at(step, 0, base_of(rate)); const auto& [role, name, most] : kRanges)
        if (values[role] && !(*values[role] >= 0 && *values[role] <= most))
          throw CheckFailure(formatted("the {} is {}", name, *values[role]), formatted("step {}, base {}", step, rate));
}

// Scheduler::at throws for an undeclared role; a role that the optimizer must have must also be
// written.
void roles(Subject& subject) {
  const CheckedScheduler made(subject);
  uint64_t written = 0;
  for (const uint64_t step : steps()) {
    const Values values = made.at(step, 0, base_of(0.01));
    for (uint32_t role = 1; role < GANNET_ROLE_COUNT; ++role)
      if (values[role]) written |= uint64_t{1} << role;
  }
  for (uint32_t role = 1; role < GANNET_ROLE_COUNT; ++role)
    if ((made.scheduler.roles() >> role & 1) && !(written >> role & 1))
      throw CheckFailure(formatted("it declares that the optimizer must have role {}, and never writes it", role),
                         "steps 0 to 1000000");
}

// A group's rate depends on the group's own base, unless the schedule has values of its own and
// reads no base. A group's base must never affect another group.
void base(Subject& subject) {
  Values none;
  const CheckedScheduler made(subject);
  for (const uint64_t step : {uint64_t{0}, uint64_t{10}, uint64_t{100000}}) made.at(step, 0, none);  // NaN: there is no base
  const CheckedScheduler two(subject, 2), other(subject, 2);
  for (const uint64_t step : steps()) {
    const Values low = two.at(step, 0, base_of(0.01)), high = two.at(step, 1, base_of(0.02));
    require_equal(two.at(step, 0, base_of(0.01)), low, step, "group 0, asked after group 1,");
    require_equal(other.at(step, 1, base_of(0.02)), high, step, "an object that knows no other base");
    const auto a = low[GANNET_ROLE_LEARNING_RATE], b = high[GANNET_ROLE_LEARNING_RATE];
    if (a.has_value() != b.has_value())
      throw CheckFailure("it sets the learning rate of one group alone", formatted("step {}", step));
    if (a && *b < *a)
      throw CheckFailure(formatted("twice the base gives a smaller rate, {} and not at least {}", *b, *a),
                         formatted("step {}", step), "a larger base never gives a smaller learning rate");
  }
}

// The values of a process whose first question had this base.
std::string values_after(Subject& subject, double first_base) {
  const ChildAnswer answer = ask_child(
      [&] {
        const CheckedScheduler first(subject), made(subject);
        first.at(0, 0, base_of(first_base));
        std::string values;
        for (const uint64_t step : steps())
          values += formatted("step {}: {}\n", step, text_of_values(made.at(step, 0, base_of(0.01))));
        return values;
      },
      std::chrono::seconds(20));
  if (!answer.failure.empty()) throw CheckFailure(answer.failure, answer.where);
  return answer.text;
}

// A resumed run begins with the rate of another step.
void processes(Subject& subject) {
  const std::string expected = values_after(subject, 0.01);
  for (const double first_base : {0.02, 1e-4})
    if (const std::string found = values_after(subject, first_base); found != expected) {
      const size_t at =
          static_cast<size_t>(std::mismatch(found.begin(), found.end(), expected.begin(), expected.end()).first - found.begin());
      const auto line = [&](const std::string& text) {
        const size_t begin = text.rfind('\n', at) + 1;
        return text.substr(begin, text.find('\n', at) - begin);
      };
      throw CheckFailure(formatted("{}, and in another process {}", line(found), line(expected)),
                         formatted("processes whose first questions have the bases {} and 0.01", first_base));
    }
}

// A metric that a program measures: it improves for a while, stays level, then worsens, with some
// noise.
double metric_at(uint64_t step) {
  return 1 / (1 + 0.1 * static_cast<double>(std::min<uint64_t>(step, 40))) + 1e-3 * static_cast<double>(step % 3) +
         (step > 150 ? 1e-3 * static_cast<double>(step - 150) : 0);
}

// The result depends only on the state that the host keeps, not on the object: a new object
// continues from saved state.
void keeps_its_state(Subject& subject) {
  const CheckedScheduler first(subject);
  if (first.scheduler.first_state().empty()) throw SkippedCheck("it is a function of the step alone");
  const Values base = base_of(0.01);
  const auto advance = [](const CheckedScheduler& made, uint64_t step, const std::vector<double>& state) {
    const CallScope calling("advance", step);
    return made.scheduler.advanced(step, made.scheduler.needs_metric() ? metric_at(step) : NAN, state);
  };
  constexpr uint64_t kSteps = 300, kSaved = 77;
  std::vector<std::vector<double>> states = {first.scheduler.first_state()};
  std::vector<Values> values = {first.scheduler.at(0, 0, base, states[0])};
  for (uint64_t step = 1; step <= kSteps; ++step) {
    states.push_back(advance(first, step, states.back()));
    values.push_back(first.scheduler.at(step, 0, base, states.back()));
    for (const double number : states.back())
      if (!std::isfinite(number))
        throw CheckFailure(formatted("a number of its state is {}, which no checkpoint keeps", number),
                           formatted("step {}", step));
  }
  for (const uint64_t begin : {uint64_t{0}, kSaved}) {
    const CheckedScheduler other(subject);
    std::vector<double> state = states[begin];
    for (uint64_t step = begin + 1; step <= kSteps; ++step) {
      state = advance(other, step, state);
      if (state != states[step])
        throw CheckFailure("another object with the same state and metric has another state afterwards",
                           formatted("step {}, begun at {}", step, begin));
      require_equal(other.scheduler.at(step, 0, base, state), values[step], step, "another object that resumed");
    }
  }
}

// A run's values: at its beginning, at its end and long after it. Advances a schedule that has
// state.
std::vector<Values> run_of(const CheckedScheduler& made, uint64_t last) {
  std::vector<double> state = made.scheduler.first_state();
  std::vector<Values> values;
  for (uint64_t step = 0; step <= last; ++step) {
    if (step > 0) {
      const CallScope calling("advance", step);
      state = made.scheduler.advanced(step, made.scheduler.needs_metric() ? metric_at(step) : NAN, state);
    }
    const CallScope calling("value", step);
    values.push_back(made.scheduler.at(step, 0, base_of(0.01), state));
  }
  return values;
}

// The planned length of a run: none, a few steps, many; and the steps beyond its end.
void total_steps(Subject& subject) {
  const CheckedScheduler one(subject);
  const bool has_state = !one.scheduler.first_state().empty();
  for (const uint64_t total : {uint64_t{0}, uint64_t{100}, uint64_t{1000}, uint64_t{7}, uint64_t{0}}) {
    const std::string config = total > 0 ? formatted("a run of {} steps", total) : "a run of unknown length";
    set_config(config);
    const CheckedScheduler fresh(subject, 1, total);
    const std::vector<Values> expected = run_of(fresh, 3 * std::max<uint64_t>(total, 30));
    for (uint64_t step = 0; step < expected.size(); ++step) {
      const auto rate = expected[step][GANNET_ROLE_LEARNING_RATE];
      if (rate && *rate < 0)
        throw CheckFailure(formatted("the learning rate is {}", *rate), formatted("{}, step {}", config, step),
                           "no learning rate is negative, nor after the planned end of the run", "clamp after the end");
    }
    // Query the same object for runs of other lengths, one after another.
    const RelayScope scope({.total_steps = total});
    if (has_state) {
      const std::vector<Values> found = run_of(one, expected.size() - 1);
      for (uint64_t step = 0; step < found.size(); ++step)
        require_equal(found[step], expected[step], step, "an object that took part in a run of another length before");
      continue;
    }
    for (uint64_t step = 0; step < expected.size(); ++step)
      require_equal(one.at(step, 0, base_of(0.01)), expected[step], step, "an object that was asked about another length before");
  }
}

// The same queries with other forms of structs (RelayOptions), which must not change the results.
void struct_shapes(Subject& subject) {
  const CheckedScheduler plain(subject);
  const std::vector<Values> expected = run_of(plain, 200);
  for (const auto& [name, shape] : {std::pair{"write-protected structs", RelayOptions{.copies_arguments = true}},
                                    {"structs of a later minor", RelayOptions{.appended_bytes = 64}},
                                    {"structs of minor 0", RelayOptions{.minor = 0, .guards_allocations = true}}}) {
    if (shape.minor < subject.least_minor) continue;
    const RelayScope scope(shape);
    set_config(name);
    const CheckedScheduler made(subject);
    const std::vector<Values> found = run_of(made, 200);
    for (uint64_t step = 0; step < found.size(); ++step) require_equal(found[step], expected[step], step, name);
    throw_kept_fault();
  }
}

}  // namespace

void use_scheduler(Subject& subject) { run_of(CheckedScheduler(subject), 300); }

std::vector<Check> scheduler_checks() {
  return {
      {"description", "describe says the same again, and on another object", "it is a function of the params alone", 30,
       description},
      {"pure",
       "the value depends on the query alone: the same in any order, again, a second later, and on every object of every rank",
       "compute it from "
       "query->step; keep no position in the object",
       60, pure},
      {"processes", "the value depends on no earlier question: it is the same in every process, whatever was asked there first",
       "keep nothing in static variables", 60, processes},
      {"far-steps", "steps beyond 2^31 and 2^32 continue the schedule", "keep query->step in 64 bits, or in double", 60,
       far_steps},
      {"finite", "steps 0 to 1,000,000 give finite values and no negative learning rate", "clamp after the schedule's end", 60,
       finite},
      {"roles", "it writes the roles that it declares, and no others", "declare them in describe", 60, roles},
      {"base", "the group's own values are honoured, also where it has none (NaN)",
       "take the base from the query "
       "(gannet::sdk::base_value)",
       60, base},
      {"keeps-its-state", "whatever is not a function of the step is in the state: a new object continues from a saved one",
       "write args->state in advance, and read query->state in value", 60, keeps_its_state},
      {"total-steps",
       "with every length of the run, and without one, the values are finite and no rate negative, to three times the length; "
       "a length counts for the question that has it",
       "read query->total_steps (0: not known) in every call, and clamp after it", 60, total_steps},
      {"other-hosts", "structs that are longer or shorter, as another minor has them, change nothing; arguments are only read",
       "ask GANNET_HAS() for fields that are newer than 2.0; copy what you change", 60, struct_shapes}};
}

}  // namespace gannet::kit
