// One rank's sums of metrics over batches, kept until they are averaged over all ranks.
#pragma once

#include <gannet/trial_base.h>
#include <gannet/trial_metrics.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gannet {

class EngineBase;

namespace trials {

class MetricSums {
 public:
  // `where` starts error texts: "train_batch, batch 7". Throws Error(kArgument) if metrics are
  // missing, not single numbers or named differently than before, or if of_samples() is negative.
  void add(const BatchMetrics& metrics, const detail::DrawnCount& drawn, const std::string& where);
  // Averages each metric over all ranks, and clears the sums. Every rank calls it. NaN and infinity
  // are preserved. Throws Error(kMismatch) if ranks have different metrics.
  TrialMetrics average(EngineBase& engine, const std::string& what);

  bool empty() const { return sums_.empty(); }
  Value save() const;
  // `share` scales the sums; it is not 1 if the number of ranks changed.
  void load(const Value& saved, double share);

 private:
  // Tensors are summed on their device and read when they are averaged. A checkpoint keeps the
  // host's and the device's sum separate, so that a resumed run adds in the same order.
  struct Sum {
    double host = 0;
    at::Tensor device;  // fp64 scalar, or undefined
    double total() const;
  };
  std::map<std::string, Sum> sums_;
  double weight_ = 0;
};

// These convert numbers for a checkpoint or a file, in which NaN and infinities are strings.
Value number_to_value(double number);
double number_from_value(const Value& value);

}  // namespace trials
}  // namespace gannet
