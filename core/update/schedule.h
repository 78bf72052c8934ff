// The lr phase of a step: each group's learning rate (and momentum) as a function of the number of
// updates, from a Scheduler plugin or the program's function.
//
//   Schedule::NextValues next = schedule.next();       // before the step changes anything: a schedule may throw
//   ... the update ...
//   schedule.advance(std::move(next));               // sets each group's learning rate for the next update
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "interfaces/scheduler.h"
#include "params/range.h"

namespace gannet {

class Schedule {
 public:
  using Function = std::function<double(int64_t step)>;
  using Values = std::vector<Scheduler::Values>;  // [groups]; empty: no change

  /// `groups` belong to the engine and outlive the schedule; groups may be added.
  explicit Schedule(std::vector<Group>& groups) : groups_(groups) {}
  /// Uses the program's function instead of a plugin. `by_hand`: the program advances the schedule,
  /// not the step.
  void use(Function function, bool by_hand);
  void use(std::unique_ptr<Scheduler> plugin);

  /// Throws Error(kConfig) if an optimizer of `groups` has no parameter in a role that the schedule
  /// sets. Logs a warning if the schedule also sets optional roles and no optimizer has a parameter
  /// in any of these.
  void check(const std::vector<Group>& groups, const std::string& scheduler, const std::string& optimizer) const;

  bool has_function() const { return static_cast<bool>(function_); }
  const Scheduler* plugin() const { return plugin_.get(); }
  bool exists() const { return function_ || plugin_; }
  /// Whether the program advances the schedule. The values remain in effect until it does.
  bool is_by_hand() const { return by_hand_; }

  /// The values for the update after the next one; empty if the program advances the schedule.
  struct NextValues {
    Values values;
    std::vector<double> state;
  };
  NextValues next() const { return by_hand_ ? NextValues() : after(kNoMetric); }
  /// Call after an update. A no-op if the program advances the schedule.
  void advance(NextValues next);
  /// Returns the rates at the current position for `groups`, whose base values may differ from
  /// those of the engine's groups. set() writes the rates to the engine's groups.
  Values now(const std::vector<Group>& groups) const { return at(position, groups, state); }
  void set(const Values& values) { apply(values); }
  void step(std::optional<double> metric = {});  // for the program: advances by one; throws Error(kArgument) on a wrong metric
  void jump(int64_t to);                         // throws Error(kUnsupported) for a schedule with state
  void apply();                                  // writes the rates at the current position to the groups

  int64_t position = 0;       // number of updates seen; set by a load or the program
  std::vector<double> state;  // the plugin's state at `position`
  double last_metric = 0;     // the last metric passed by the program; the same on every rank

 private:
  static constexpr double kNoMetric = std::numeric_limits<double>::quiet_NaN();
  NextValues after(double metric) const;
  void follow(const Values& before, const Values& after);
  Values at(int64_t position, const std::vector<Group>& groups, const std::vector<double>& state) const;
  void apply(const Values& values);

  std::vector<Group>& groups_;
  Function function_;
  std::unique_ptr<Scheduler> plugin_;
  bool by_hand_ = false;
};

/// The value for group `g` in a role; empty if the schedule does not set it.
inline std::optional<double> scheduled_value(const Schedule::Values& values, size_t g, uint32_t role) {
  return g < values.size() && role < GANNET_ROLE_COUNT ? values[g][role] : std::nullopt;
}

}  // namespace gannet
