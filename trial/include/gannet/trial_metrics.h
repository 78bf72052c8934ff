/// Metrics of a trial: numbers per batch, and reducers for metrics that are not means over batches.
///
///   return {{"loss", loss}, {"accuracy", correct / total}};   // in train_batch and evaluate_batch
///   return loss;                                              // the same as {{"loss", loss}}
///   return gannet::BatchMetrics{{"loss", loss}}.of_samples(12);
///
/// Metrics are averaged over batches and ranks, weighted by samples. The number of samples is known
/// if the batch is a tensor, or has a tensor `data` or a `samples()`; for all other batches,
/// of_samples() sets it. Without a number of samples every batch has weight 1.
///
/// A reducer collects values on each rank, and then combines those of all ranks into one number or
/// a dictionary of numbers:
///
///   struct F1 : gannet::MetricReducer {
///     void update(const at::Tensor& guess, const at::Tensor& truth) { ... }                  // by train_batch, evaluate_batch
///     void reset() override { hits = misses = 0; }
///     gannet::Value per_slot_reduce() override { return gannet::List{hits, misses}; }        // the values of this rank
///     gannet::Value cross_slot_reduce(const gannet::List& slots) override { ... }            // the values of all, by rank
///     double hits = 0, misses = 0;
///   };
///   f1_ = context.wrap_reducer(std::make_shared<F1>(), "f1");
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/value.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace gannet {

/// A number, or a one-element tensor that is read only when it is reported.
class MetricValue {
 public:
  MetricValue(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  MetricValue(double number) : number_(number) {}
  MetricValue(float number) : number_(number) {}
  MetricValue(int number) : number_(number) {}
  MetricValue(int64_t number) : number_(static_cast<double>(number)) {}

  bool is_tensor() const { return !number_.has_value(); }
  const at::Tensor& tensor() const { return tensor_; }
  double number() const { return *number_; }

 private:
  at::Tensor tensor_;
  std::optional<double> number_;
};

/// The metrics of one call of train_batch or evaluate_batch.
class BatchMetrics {
 public:
  BatchMetrics() = default;  ///< no metrics, which is an error of the trial
  BatchMetrics(const at::Tensor& loss) : values_{{"loss", loss}} {}
  BatchMetrics(std::initializer_list<std::pair<const std::string, MetricValue>> values) : values_(values) {}
  BatchMetrics(std::map<std::string, MetricValue> values) : values_(std::move(values)) {}

  /// Sets the number of samples over which the metrics are means.
  BatchMetrics& of_samples(double samples) {
    samples_ = samples;
    return *this;
  }

  const std::map<std::string, MetricValue>& values() const { return values_; }
  std::optional<double> samples() const { return samples_; }

 private:
  std::map<std::string, MetricValue> values_;
  std::optional<double> samples_;
};

/// Averages over batches and ranks, by name.
using TrialMetrics = std::map<std::string, double>;

/// See the top of the file. A slot is a rank. reset() is called at the start of each period: a
/// training period ends with a report, a validation period with its last batch.
class MetricReducer {
 public:
  virtual ~MetricReducer() = default;
  virtual void reset() = 0;
  virtual Value per_slot_reduce() = 0;
  /// Called on every rank with the same values. Returns a number or, without a name, a dictionary of numbers.
  virtual Value cross_slot_reduce(const List& per_slot) = 0;
  /// This rank's state for a checkpoint or a validation within a period. If it is null, a resume or
  /// that validation loses the values since the last report, with a warning.
  virtual Value save() const { return {}; }
  virtual void load(const Value&) {}
};

/// Collects values, and applies a function to the concatenated values of all ranks.
class FunctionReducer : public MetricReducer {
 public:
  explicit FunctionReducer(std::function<Value(const List& values)> function) : function_(std::move(function)) {}
  void update(Value value) { values_.push_back(std::move(value)); }
  void reset() override { values_.clear(); }
  Value per_slot_reduce() override { return values_; }
  Value cross_slot_reduce(const List& per_slot) override;
  Value save() const override { return values_; }
  void load(const Value& saved) override { values_ = saved.as_list(); }

 private:
  std::function<Value(const List&)> function_;
  List values_;
};

/// The phases in which a reducer takes part.
struct ReducerUse {
  bool for_training = true, for_validation = true;
};

}  // namespace gannet
