// The shared base of DeepSpeed's schedules. The values are those that DeepSpeed's scheduler objects
// set in the optimizer, as a pure function of the number of updates applied. Index 0 is the value set
// at construction, and index j >= 1 is the value set by the j-th scheduler step, whose
// last_batch_iteration is i = j - 1 in a new schedule.
#pragma once

#include <cstdint>
#include <gannet/sdk.hpp>
#include <string>
#include <vector>

namespace gannet::schedulers {

class Schedule : public sdk::SchedulerBase {
 public:
  // The parameter that all of these schedules share.
  static constexpr gannet_param_spec kLastBatchIteration = sdk::at_least(
      sdk::integer("last_batch_iteration", "-1", "iteration to resume from; -1: from the beginning, initial values set"), -1);

 protected:
  Schedule(const sdk::HostServices& host, const sdk::Params& params)
      : SchedulerBase(host), last_batch_iteration_(params.integer("last_batch_iteration")) {}

  // Returns the i of the formulas, for step >= 1.
  int64_t iteration(uint64_t step) const { return last_batch_iteration_ + static_cast<int64_t>(step); }
  // Whether this is before the first scheduler step. At that point a resumed schedule leaves the
  // optimizer unchanged, and a new one sets its initial values.
  bool at_start(uint64_t step) const { return step == 0; }
  bool leaves_start_alone() const { return last_batch_iteration_ != -1; }

  static sdk::ScheduleValues nothing() { return {}; }
  static sdk::ScheduleValues lr(double lr) { return sdk::ScheduleValues().set(GANNET_ROLE_LEARNING_RATE, lr); }

  // Reads a bound that is one number for all parameter groups, or a list with one number per group.
  static std::vector<double> per_group(const sdk::Params& params, const char* name, uint32_t group_count) {
    std::vector<double> values = params.numbers(name);
    if (values.size() == 1) values.resize(group_count, values[0]);
    if (values.size() != group_count)
      throw sdk::Failure(GANNET_INVALID_ARGUMENT, "expected " + std::to_string(group_count) + " values for '" + name + "', got " +
                                                      std::to_string(values.size()) +
                                                      ": give one number for all parameter groups, or a list with one for each");
    return values;
  }

 private:
  int64_t last_batch_iteration_;
};

}  // namespace gannet::schedulers
