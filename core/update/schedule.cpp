#include "update/schedule.h"

#include <gannet/error.h>

#include <cmath>

#include "base/format.h"

namespace gannet {

void Schedule::use(Function function, bool by_hand) {
  function_ = std::move(function);
  by_hand_ = by_hand;
}

void Schedule::advance(const Values& values) {
  if (by_hand_) return;
  ++position;
  apply(values);
}

void Schedule::step() {
  const Values values = at(position + 1);
  ++position;
  apply(values);
}

void Schedule::apply() { apply(at(position)); }

Schedule::Values Schedule::at(int64_t position) const {
  Values values;
  if (!exists()) return values;
  for (size_t g = 0; g < groups_.size(); ++g) {
    auto& value = values.emplace_back();
    if (function_)
      value.lr = function_(position);
    else
      value = plugin_->at(static_cast<uint64_t>(position), static_cast<uint32_t>(g), groups_[g].base_lr);
    if (value.lr && !std::isfinite(*value.lr))
      throw Error(ErrorCode::kArgument, formatted("the schedule's learning rate at position {} is {}", position, *value.lr),
                  "a learning rate is a finite number");
  }
  return values;
}

void Schedule::apply(const Values& values) {
  for (size_t g = 0; g < values.size(); ++g) {
    Group& group = groups_[g];
    const Scheduler::Value& value = values[g];
    if (double* lr = group.find("lr"); lr && value.lr) *lr = *value.lr;
    if (double* beta1 = group.find("betas[0]"); beta1 && value.beta1) *beta1 = *value.beta1;
    if (double* beta2 = group.find("betas[1]"); beta2 && value.beta2) *beta2 = *value.beta2;
  }
}

}  // namespace gannet
