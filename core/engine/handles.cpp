// The program's handles to the optimizer and the schedule. They refer to the engine weakly: a
// handle that outlives it throws.
#include <gannet/engine.h>

#include <cmath>

#include "base/format.h"
#include "engine/impl.h"
#include "engine/report.h"
#include "plugin/schema.h"

namespace gannet {
namespace {

// Access to a live engine. Throws if the engine has ended.
class LockedEngine {
 public:
  explicit LockedEngine(const EngineReference& reference) : held_(reference.lock()) {
    if (!held_)
      throw Error(ErrorCode::kOrder, "a handle of the optimizer or the schedule was used after its engine had ended",
                  "keep the engine as long as its handles; a new engine has new ones");
  }
  EngineBase::Impl* operator->() const { return static_cast<EngineBase::Impl*>(held_.get()); }

 private:
  std::shared_ptr<void> held_;
};

double& hyperparameter(Group& group, const std::string& name) {
  if (double* value = group.find(name)) return *value;
  std::string names;
  for (auto& known : group.hyper_names) names += (names.empty() ? "" : ", ") + known;
  throw Error(ErrorCode::kArgument, formatted("parameter group '{}' has no hyperparameter '{}'", group.name, name),
              formatted("it has {}", names));
}

}  // namespace

void check_hyperparameter(const Group& group, const std::string& name, double value) {
  if (!std::isfinite(value))
    throw Error(ErrorCode::kArgument, formatted("'{}' was set to {}: it is a finite number", name, value));
  if (!group.optimizer) {  // the program's own class: no other limits are known
    if (name != "lr" || value >= 0) return;
    throw Error(ErrorCode::kArgument, formatted("'lr' was set to {}: expected a number >= 0", value));
  }
  const plugin::Plugin& plugin = group.optimizer->plugin();
  try {
    plugin::check_dynamic(*plugin.descriptor, name, value);
  } catch (const Error& error) {
    throw Error(ErrorCode::kArgument, formatted("'{}' of parameter group '{}' was set: {}", name, group.name, error.message()),
                formatted("these are also the limits of optimizer '{}' in the config", plugin.name()));
  }
}

const std::string& OptimizerHandle::Group::name() const { return LockedEngine(engine_)->groups[index_].name; }
std::vector<std::string> OptimizerHandle::Group::hyperparameters() const {
  return LockedEngine(engine_)->groups[index_].hyper_names;
}
const std::vector<at::Tensor>& OptimizerHandle::Group::parameters() const {
  return LockedEngine(engine_)->groups[index_].parameters;
}
double OptimizerHandle::Group::get(const std::string& name) const {
  return hyperparameter(LockedEngine(engine_)->groups[index_], name);
}
void OptimizerHandle::Group::set(const std::string& name, double value) {
  const LockedEngine impl(engine_);
  gannet::Group& group = impl->groups[index_];
  double& current = hyperparameter(group, name);
  check_hyperparameter(group, name, value);
  current = value;
}

size_t OptimizerHandle::group_count() const { return LockedEngine(engine_)->groups.size(); }
OptimizerHandle::Group OptimizerHandle::group(size_t index) {
  const size_t count = group_count();
  if (index >= count) throw Error(ErrorCode::kArgument, formatted("there is no parameter group {}, there are {}", index, count));
  return Group(engine_, index);
}
std::string OptimizerHandle::type() const {
  const LockedEngine impl(engine_);
  return impl->torch_optimizer ? "user" : impl->optimizer_name();
}

std::string EngineBase::Impl::optimizer_name() const {
  if (user_optimizer) return "user";
  return groups.empty() || !groups[0].optimizer ? "none" : groups[0].optimizer->plugin().name();
}

void SchedulerHandle::step() { LockedEngine(engine_)->schedule.step(); }
void SchedulerHandle::step(double metric) { LockedEngine(engine_)->schedule.step(metric); }
void SchedulerHandle::step_to(int64_t step) {
  const LockedEngine impl(engine_);
  impl->schedule.jump(step);
}
int64_t SchedulerHandle::position() const { return LockedEngine(engine_)->schedule.position; }
std::vector<double> SchedulerHandle::get_last_lr() const { return rates(LockedEngine(engine_)->groups); }
std::string SchedulerHandle::type() const {
  const LockedEngine impl(engine_);
  if (impl->schedule.has_function()) return "user";
  return impl->schedule.plugin() ? impl->schedule.plugin()->plugin().name() : "none";
}

}  // namespace gannet
