// Sums of metrics over batches, of one rank, until they are averaged over all.
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
  // `where` heads errors: "train_batch, batch 7". Error(kArgument) for metrics that are missing, no single number, or other ones
  // than those of the calls before.
  void add(const BatchMetrics& metrics, const detail::Drawn& drawn, const std::string& where);
  // The averages of all ranks, in the order of the names; empties the sums. Every rank calls it. NaN and infinity stay what they
  // are. Error(kMismatch) where ranks have different metrics.
  TrialMetrics average(EngineBase& engine, const std::string& what);

  bool empty() const { return sums_.empty(); }
  Value save() const;
  // `share`: what of it is this rank's, where the number of ranks changed.
  void load(const Value& saved, double share);

 private:
  // Tensors are summed on their device and read when they are averaged; both sums are kept apart in a checkpoint, so that a
  // resume adds up in the same order.
  struct Sum {
    double host = 0;
    at::Tensor device;  // fp64 scalar, or undefined
    double total() const;
  };
  std::map<std::string, Sum> sums_;
  double weight_ = 0;
};

// A number for a checkpoint or a file: NaN and infinities are texts there.
Value number_to_value(double number);
double number_from_value(const Value& value);

}  // namespace trials
}  // namespace gannet
