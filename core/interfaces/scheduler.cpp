#include "interfaces/scheduler.h"

#include <gannet/error.h>

#include <cmath>

#include "base/format.h"
#include "interfaces/call.h"

namespace gannet {

Scheduler::Scheduler(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host, uint32_t group_count)
    : plugin_(plugin),
      params_(std::move(params)),
      api_(interfaces::api_of<gannet_scheduler_api>(plugin)),
      group_count_(group_count) {
  interfaces::call(plugin_, api_->create, host.table(), &params_.view(), group_count, &self_);
}

Scheduler::~Scheduler() { api_->destroy(self_); }

Scheduler::Value Scheduler::at(uint64_t step, uint32_t group, double base_lr) const {
  gannet_schedule_query query{};
  query.struct_size = sizeof(query);
  query.group = group;
  query.group_count = group_count_;
  query.step = step;
  query.base_lr = base_lr;
  gannet_schedule_value value{};
  value.struct_size = sizeof(value);
  interfaces::call(plugin_, api_->value, self_, &query, &value);

  const auto field = [&](gannet_schedule_field bit, double number, const char* name) -> std::optional<double> {
    if ((value.fields & bit) == 0) return std::nullopt;
    if (!std::isfinite(number))
      throw Error(ErrorCode::kPlugin, formatted("{} gave a {} of {} for step {}", interfaces::who(plugin_), name, number, step),
                  "check the schedule's params");
    return number;
  };
  return {field(GANNET_SCHEDULE_LR, value.lr, "learning rate"), field(GANNET_SCHEDULE_BETA1, value.beta1, "beta1"),
          field(GANNET_SCHEDULE_BETA2, value.beta2, "beta2")};
}

}  // namespace gannet
