// A schedule of one of our plugins, opened through only the C contract.
//
//   const ScheduleUnderTest schedule("WarmupLR", Dict{{"warmup_num_steps", 10}});
//   schedule.lr(3);   // of the fourth update, where the group's own is 0.1
#pragma once

#include <map>
#include <string>

#include "optimizers/loaded_plugin.h"

namespace gannet::test {

// By the plugin's name; each has the file of its folder.
inline const LoadedPlugin& plugin(const std::string& name) {
  static auto& opened = *new std::map<std::string, LoadedPlugin>;
  static const auto& folders = *new std::map<std::string, std::string>{{"WarmupLR", "warmup_lr"},
                                                                       {"WarmupDecayLR", "warmup_decay_lr"},
                                                                       {"WarmupCosineLR", "warmup_cosine_lr"},
                                                                       {"OneCycle", "one_cycle"},
                                                                       {"LRRangeTest", "lr_range_test"}};
  const auto folder = folders.find(name);  // those of transformers bear the names of their folders
  return opened.try_emplace(name, "scheduler_" + (folder == folders.end() ? name : folder->second), name).first->second;
}

class ScheduleUnderTest {
 public:
  ScheduleUnderTest(const std::string& name, const Dict& params, uint32_t groups = 1)
      : params_(*plugin(name).descriptor, params), api_(plugin(name).api<gannet_scheduler_api>()), groups_(groups) {
    ErrorText error;
    error.raise_unless_ok(api_.create(&host.table, &params_.view, groups, &self_, &error.error));
  }
  ~ScheduleUnderTest() {
    if (self_) api_.destroy(self_);
  }
  struct Values {
    uint64_t roles;
    double lr, beta1, beta2;
  };
  Values at(uint64_t step, uint32_t group = 0, double base_lr = 0.1) const {
    const double base[GANNET_ROLE_COUNT] = {0, base_lr};
    double set[GANNET_ROLE_COUNT] = {};
    gannet_schedule_query query{sizeof(query), group, groups_, GANNET_ROLE_COUNT, step, base};
    query.total_steps = total_steps;
    if (is_of_2_0) query.struct_size = offsetof(gannet_schedule_query, total_steps);
    gannet_schedule_value value{sizeof(value), GANNET_ROLE_COUNT, 0, set};
    ErrorText error;
    error.raise_unless_ok(api_.value(self_, &query, &value, &error.error));
    return {value.roles, set[GANNET_ROLE_LEARNING_RATE], set[GANNET_ROLE_BETA1], set[GANNET_ROLE_BETA2]};
  }
  double lr(uint64_t step, uint32_t group = 0, double base_lr = 0.1) const { return at(step, group, base_lr).lr; }

  TestHost host;
  uint64_t total_steps = 0;  // of the run, as the host knows it
  bool is_of_2_0 = false;    // the host is

 private:
  ParamValues params_;
  const gannet_scheduler_api& api_;
  uint32_t groups_;
  void* self_ = nullptr;
};

}  // namespace gannet::test
