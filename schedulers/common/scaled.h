// The shared base of transformers' schedules. The learning rate is a factor times the group's own
// rate; the factor is a function of the number of updates applied, with a warm-up (by default linear from 0).
// (DeepSpeed's schedules are in schedule.h.)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gannet/sdk.hpp>
#include <string>

namespace gannet::schedulers {

inline constexpr double kPi = 3.14159265358979323846;

class Scaled : public sdk::SchedulerBase {
 public:
  static constexpr gannet_param_spec kWarmupSteps =
      sdk::at_least(sdk::integer("warmup_num_steps", "0", "updates over which the rate rises from 0; 0: none"), 0);
  static constexpr gannet_param_spec kTotalSteps = sdk::at_least(
      sdk::integer("total_num_steps", nullptr, "updates of the whole run; null: gannet.total_steps", GANNET_PARAM_NULLABLE), 1);

 protected:
  Scaled(const sdk::HostServices& host, const sdk::Params& params)
      : SchedulerBase(host), warmup_(params.integer("warmup_num_steps")) {}
  Scaled(const sdk::HostServices& host, const sdk::Params& params, int64_t total) : Scaled(host, params) {
    total_ = total;
    has_end_ = true;
    if (total_ > 0 && total_ < warmup_)
      warn("total_num_steps " + std::to_string(total_) + " is less than warmup_num_steps " + std::to_string(warmup_) +
           ": the warm-up is cut off");
  }

  // Returns 0 if the param is not given; the length then comes from the query.
  static int64_t total_in(const sdk::Params& params) {
    return params.has("total_num_steps") ? params.integer("total_num_steps") : 0;
  }

  // Returns the number of updates applied before the queried one, which is transformers' index.
  int64_t index(const gannet_schedule_query& query) const {
    if (has_end_) total(query);  // in the warm-up too, so that it fails at once if the length is unknown
    return static_cast<int64_t>(query.step);
  }
  static double own_rate(const gannet_schedule_query& query) { return sdk::base_value(query, GANNET_ROLE_LEARNING_RATE); }
  static sdk::ScheduleValues rate(double rate) { return sdk::ScheduleValues().set(GANNET_ROLE_LEARNING_RATE, rate); }

  int64_t warmup_steps() const { return warmup_; }
  bool is_warming_up(int64_t i) const { return i < warmup_; }
  double warmup(int64_t i) const { return static_cast<double>(i) / static_cast<double>(std::max<int64_t>(1, warmup_)); }
  // Returns the progress of the updates after the warm-up: 0 at its end, 1 at total_num_steps, more
  // beyond that.
  double progress(const gannet_schedule_query& query, int64_t i) const {
    return static_cast<double>(i - warmup_) / static_cast<double>(std::max<int64_t>(1, total(query) - warmup_));
  }
  // Returns the length that the param gives, or else that of the run; 0 if neither is known.
  static int64_t total_of(int64_t param, const gannet_schedule_query& query) {
    return param > 0 ? param : static_cast<int64_t>(sdk::total_steps(query));
  }
  int64_t total(const gannet_schedule_query& query) const {
    const int64_t total = total_of(total_, query);
    if (total == 0)
      throw sdk::Failure(GANNET_INVALID_ARGUMENT,
                         "total_num_steps is not given, and the length of the run is not known: give it, or set "
                         "gannet.total_steps");
    return total;
  }

 private:
  int64_t warmup_, total_ = 0;
  bool has_end_ = false;
};

// Half a cosine: falls from 1 to 0 as x goes from 0 to 1.
inline double half_cosine(double x) { return 0.5 * (1 + std::cos(kPi * x)); }

// The minimum of a falling rate. Exactly one of two params gives it: as an absolute rate, or as a
// ratio of the group's own rate.
class Least {
 public:
  static constexpr gannet_param_spec kRate = sdk::at_least(
      sdk::number("min_lr", nullptr, "rate to end at; this or min_lr_rate must be given", GANNET_PARAM_NULLABLE), 0);
  static constexpr gannet_param_spec kRatio = sdk::at_least(
      sdk::number("min_lr_rate", nullptr, "rate to end at as a ratio of the group's own", GANNET_PARAM_NULLABLE), 0);

  explicit Least(const sdk::Params& params) : is_ratio_(params.has("min_lr_rate")) {
    if (params.has("min_lr") == is_ratio_)
      throw sdk::Failure(GANNET_INVALID_ARGUMENT, is_ratio_ ? "min_lr and min_lr_rate are both given: keep one of the two"
                                                            : "neither min_lr nor min_lr_rate is given: give one of the two");
    value_ = params.number(is_ratio_ ? "min_lr_rate" : "min_lr");
  }
  // Returns the minimum as a ratio of `own`. A group whose rate is 0 stays at 0.
  double ratio(double own) const { return is_ratio_ ? value_ : own > 0 ? value_ / own : 0; }

 private:
  bool is_ratio_;
  double value_;
};

}  // namespace gannet::schedulers
