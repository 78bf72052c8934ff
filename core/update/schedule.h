// The phase lr of a step: what each group's learning rate (and momentum) is, as a function of the number of updates, from a
// Scheduler plugin or from a function of the program's own.
//
//   const Schedule::Values next = schedule.next();   // before anything of the step has changed: a schedule may throw
//   ... the update ...
//   schedule.advance(next);                          // the groups have the rates of the next update
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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
  void use(std::unique_ptr<Scheduler> plugin) { plugin_ = std::move(plugin); }

  /// Error(kConfig): these groups' optimizer has no parameter in a role that the schedule sets. Warns of optional ones.
  void check(const std::vector<Group>& groups, const std::string& scheduler, const std::string& optimizer) const;

  bool has_function() const { return static_cast<bool>(function_); }
  const Scheduler* plugin() const { return plugin_.get(); }
  bool exists() const { return function_ || plugin_; }

  /// Of the update after the next one; empty where the program advances the schedule itself.
  Values next() const { return by_hand_ ? Values() : at(position + 1); }
  /// After an update. Does nothing where the program advances the schedule itself.
  void advance(const Values& values);
  /// The rates of the position, for groups with other values of their own; set() puts them into the engine's groups.
  Values now(const std::vector<Group>& groups) const { return at(position, groups); }
  void set(const Values& values) { apply(values); }
  void step();   // by hand: advances by one
  void apply();  // the rates of the position, into the groups

  int64_t position = 0;  // updates that it has seen; a load, or the program, sets it

 private:
  Values at(int64_t position) const { return at(position, groups_); }
  Values at(int64_t position, const std::vector<Group>& groups) const;
  void apply(const Values& values);

  std::vector<Group>& groups_;
  Function function_;
  std::unique_ptr<Scheduler> plugin_;
  bool by_hand_ = false;
};

}  // namespace gannet
