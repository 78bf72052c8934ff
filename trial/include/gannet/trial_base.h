/// A Trial without its batch types, for the runner. Programs derive from Trial in gannet/trial.h.
#pragma once

#include <gannet/cursor.h>
#include <gannet/data.h>
#include <gannet/trial_metrics.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace gannet {

class EngineBase;

namespace detail {

// Number of samples in a batch, if its type provides one.
template <class Batch>
std::optional<double> samples_of_batch(const Batch& batch) {
  if constexpr (requires {
                  { batch.samples() } -> std::convertible_to<double>;
                }) {
    return static_cast<double>(batch.samples());
  } else if constexpr (std::same_as<Batch, at::Tensor>) {
    return batch.defined() && batch.dim() > 0 ? std::optional(static_cast<double>(batch.size(0))) : std::nullopt;
  } else if constexpr (requires {
                         { batch.data } -> std::convertible_to<at::Tensor>;
                       }) {
    return samples_of_batch<at::Tensor>(batch.data);
  } else {
    return std::nullopt;
  }
}

// The batches and samples that one call drew from its iterator.
struct DrawnCount {
  int64_t batches = 0;
  std::optional<double> samples = 0;  // nullopt if it is unknown for one of the batches
  bool counts = true;                 // false if this rank was out of data and repeated its last batch
};

[[noreturn]] void fail_unread_validation();
[[noreturn]] void fail_without_evaluation();

}  // namespace detail

/// Draws the batches of a loader one at a time. For train_batch they never end: epochs follow one
/// another. For evaluate_batch they end with the loader; drawing beyond that is Error(kArgument).
template <class Batch>
class BatchIterator {
 public:
  /// Returns the next batch, which is valid until the following call.
  Batch& next() {
    Batch& batch = draw_();
    ++drawn_.batches;
    const auto samples = detail::samples_of_batch(batch);
    drawn_.samples = drawn_.samples && samples ? std::optional(*drawn_.samples + *samples) : std::nullopt;
    return batch;
  }

 private:
  template <class, class>
  friend class Trial;
  std::function<Batch&()> draw_;
  detail::DrawnCount drawn_;
};

class TrialBase {
 public:
  virtual ~TrialBase() = default;

 private:
  friend class TrialRunner;
  template <class, class>
  friend class Trial;
  struct OpenedLoader {
    std::shared_ptr<ResumableLoader> loader;
    std::optional<int64_t> micro_batches;  // micro-batches of an epoch; nullopt for a stream
    LoaderOptions options;
  };
  struct CallResult {
    BatchMetrics metrics;
    detail::DrawnCount drawn;
  };
  virtual std::optional<OpenedLoader> open_training() = 0;
  virtual std::optional<OpenedLoader> open_validation() = 0;
  virtual CallResult call_train_batch(int64_t epoch, int64_t batch) = 0;
  // Validation: the whole dataset at once if the trial implements that; otherwise
  // begin_validation() and then one batch at a time, as long as any rank has one. The ranks agree
  // through `engine`.
  virtual std::optional<BatchMetrics> call_evaluate_full_dataset() = 0;
  virtual void begin_validation(EngineBase& engine) = 0;
  virtual bool prepare_validation_batch() = 0;
  virtual bool has_validation_data() const = 0;  // false if the prepared batch is a repeated one
  virtual CallResult call_evaluate_batch(int64_t batch) = 0;
};

}  // namespace gannet
