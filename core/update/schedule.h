// The phase lr of a step: what each group's learning rate (and momentum) is, as a function of the number of updates, from a
// Scheduler plugin or from a function of the program's own.
//
//   Schedule::Next next = schedule.next();           // before anything of the step has changed: a schedule may throw
//   ... the update ...
//   schedule.advance(std::move(next));               // the groups have the rates of the next update
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
  using Values = std::vector<Scheduler::Values>;  // [groups]; empty: nothing changes

  /// `groups` belong to the engine and outlive the schedule; more of them may come.
  explicit Schedule(std::vector<Group>& groups) : groups_(groups) {}
  /// The program's own function, in place of a plugin. `by_hand`: the program advances the schedule, not the step.
  void use(Function function, bool by_hand);
  void use(std::unique_ptr<Scheduler> plugin);

  /// Error(kConfig): these groups' optimizer has no parameter in a role that the schedule sets. Warns of optional ones.
  void check(const std::vector<Group>& groups, const std::string& scheduler, const std::string& optimizer) const;

  bool has_function() const { return static_cast<bool>(function_); }
  const Scheduler* plugin() const { return plugin_.get(); }
  bool exists() const { return function_ || plugin_; }
  /// The program advances it: what it has set stays until then.
  bool is_by_hand() const { return by_hand_; }

  /// What the update after the next one has; empty where the program advances the schedule itself.
  struct Next {
    Values values;
    std::vector<double> state;
  };
  Next next() const { return by_hand_ ? Next() : after(kNoMetric); }
  /// After an update. Does nothing where the program advances the schedule itself.
  void advance(Next next);
  /// The rates of the position, for groups with other values of their own; set() puts them into the engine's groups.
  Values now(const std::vector<Group>& groups) const { return at(position, groups, state); }
  void set(const Values& values) { apply(values); }
  void step(std::optional<double> metric = {});  // by hand: advances by one
  void jump(int64_t to);                         // Error(kUnsupported) for one with a state
  void apply();                                  // the rates of the position, into the groups

  int64_t position = 0;       // updates that it has seen; a load, or the program, sets it
  std::vector<double> state;  // of the plugin, at the position
  double last_metric = 0;     // that the program gave; the same on every rank

 private:
  static constexpr double kNoMetric = std::numeric_limits<double>::quiet_NaN();
  Next after(double metric) const;
  void follow(const Values& before, const Values& after);
  Values at(int64_t position, const std::vector<Group>& groups, const std::vector<double>& state) const;
  void apply(const Values& values);

  std::vector<Group>& groups_;
  Function function_;
  std::unique_ptr<Scheduler> plugin_;
  bool by_hand_ = false;
};

/// Of group `g` in a role; empty where the schedule does not set it.
inline std::optional<double> scheduled_value(const Schedule::Values& values, size_t g, uint32_t role) {
  return g < values.size() && role < GANNET_ROLE_COUNT ? values[g][role] : std::nullopt;
}

}  // namespace gannet
