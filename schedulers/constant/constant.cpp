// constant: every update uses each group's own learning rate. Meant for programs that must specify
// a schedule.
#include <gannet/sdk.hpp>

namespace gannet::schedulers {
namespace {

class Constant : public sdk::SchedulerBase {
 public:
  static constexpr const gannet_param_spec* kParams = nullptr;  // there are none, and an array cannot be empty

  Constant(const sdk::HostServices& host, const sdk::Params&, uint32_t) : SchedulerBase(host) {}
  sdk::ScheduleValues value(const gannet_schedule_query& query) const {
    return sdk::ScheduleValues().set(GANNET_ROLE_LEARNING_RATE, sdk::base_value(query, GANNET_ROLE_LEARNING_RATE));
  }
};

}  // namespace
}  // namespace gannet::schedulers

GANNET_PLUGINS("scheduler/constant", GANNET_TIER_STABLE,
               gannet::sdk::scheduler<gannet::schedulers::Constant>("constant", "1.0.0", "a constant learning rate"))
