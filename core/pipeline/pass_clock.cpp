#include "pipeline/pass_clock.h"

namespace gannet::pipeline {

void PassClock::begin(bool measures, size_t chunks) {
  measures_ = measures;
  sums_.assign(chunks, {0, 0, 0});
}

std::chrono::steady_clock::time_point PassClock::now() const {
  if (!ranks_.computes_on_host()) ranks_.accelerator->synchronize(ranks_.device_index());
  return std::chrono::steady_clock::now();
}

Times PassClock::times(const std::vector<uint32_t>& own_parts, size_t parts, int64_t micro_batches) const {
  std::vector<double> seconds(3 * parts);
  for (size_t chunk = 0; chunk < sums_.size(); ++chunk) {
    PassTimes sum = sums_[chunk];
    if (sum.weight == 0) sum.input = sum.weight = sum.input / 2;  // whole backwards: how they split is unknown
    double* const at = &seconds[3 * own_parts[chunk]];
    at[0] = sum.forward / static_cast<double>(micro_batches);
    at[1] = sum.input / static_cast<double>(micro_batches);
    at[2] = sum.weight / static_cast<double>(micro_batches);
  }
  ranks_.world_group->all_reduce(seconds.data(), seconds.size(), GANNET_MAX);
  Times times;
  for (size_t part = 0; part < parts; ++part)
    times.of_part.push_back({seconds[3 * part], seconds[3 * part + 1], seconds[3 * part + 2]});
  return times;
}

}  // namespace gannet::pipeline
