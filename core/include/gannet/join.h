/// Runs an epoch over ranks that have different numbers of batches: a rank that is out of data
/// takes part with zero weight until all ranks are out of data.
///
///   gannet::Join join(engine, loader);
///   while (auto* batch = join.next()) {
///     auto loss = engine->forward(batch->data, batch->target);
///     engine->backward(loss * join.scale());
///     engine->step();
///   }                                           // null on all ranks at once; the next call begins the next epoch
///
/// Every rank does the same forwards, backwards and steps, as its collectives require. A rank that
/// is out of data runs its last batch again, and its scale() is then 0. On the others scale() is
/// world size / ranks that have data, so that the engine's average over all ranks equals the
/// average over the ranks that have data: a step equals that of a single process that takes the
/// mean of these ranks' losses. Under gradient accumulation each micro-batch is scaled by its own
/// count. With JoinOptions::weight (the number of samples, say) the step takes the weighted mean:
/// scale() = own weight / mean weight.
///
/// A rank that is out of data still draws random numbers, and statistics such as batch norm's see
/// its last batch again, although its weight is 0. A non-finite loss stays non-finite at any
/// weight. Leave the batch unmodified, since it may be used again.
///
/// A checkpoint between two steps records which ranks are out of data, so resume it with a Join as
/// well.
#pragma once

#include <gannet/data.h>

#include <cmath>
#include <concepts>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace gannet {

namespace loading {

template <class Engine>
concept Averages = requires(Engine& engine) {
  { engine.mean(1.0) } -> std::convertible_to<double>;
};

[[noreturn]] void fail_joining_elsewhere();
[[noreturn]] void fail_joining_without_batch(bool here);
void check_join_weight(double weight);

}  // namespace loading

template <class Batch>
struct JoinOptions {
  std::function<double(const Batch&)> weight = {};  ///< a batch's weight relative to other ranks'; above 0; default: 1
  /// Batch that a rank runs with zero weight if it never got one: its stream was empty, or had
  /// ended before a resume.
  std::shared_ptr<Batch> spare = {};
};

/// See the top of the file. The engine is anything with `double mean(double)` over the ranks.
/// Engine and loader must outlive the Join, or be shared with it. Every rank must make a Join, and
/// call next() once for each micro-batch, before its forward.
template <class Batch>
class Join {
 public:
  template <loading::Averages Engine>
  Join(Engine& engine, DataLoader<Batch>& loader, JoinOptions<Batch> options = {})
      : mean_([&engine](double value) { return engine.mean(value); }),
        loader_(&loader, [](DataLoader<Batch>*) {}),
        options_(std::move(options)) {}
  template <class Engine>
  Join(const std::shared_ptr<Engine>& engine, const std::shared_ptr<DataLoader<Batch>>& loader, JoinOptions<Batch> options = {})
      : mean_([engine](double value) { return engine->mean(value); }), loader_(loader), options_(std::move(options)) {}
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  /// Returns the next micro-batch, or null when every rank's epoch has ended. Collective. An
  /// exception from reading the data is thrown here; the other ranks then get Error(kPeerLost)
  /// instead of hanging.
  Batch* next() {
    const double weight = advance();
    double mean = mean_(weight);
    if (std::isnan(mean)) loading::fail_joining_elsewhere();
    const bool some_have_none = std::isinf(mean);  // then some rank has no batch at all: an error, unless all are out of data
    if (some_have_none) mean = mean_(has_data_ ? 1 : 0);
    if (mean == 0) {
      in_epoch_ = false;
      scale_ = 0;
      loader_->loader_.hold_end(false);
      return nullptr;
    }
    if (some_have_none) loading::fail_joining_without_batch(!batch_);
    scale_ = weight / mean;
    return batch_.get();
  }

  double scale() const { return scale_; }      ///< factor of this rank's loss in this micro-batch
  bool has_data() const { return has_data_; }  ///< false: the batch is a repeated one, and scale() is 0

 private:
  // The weight of this rank's next batch: 0 if it is out of data, minus infinity if it also has no
  // batch to repeat.
  double advance() {
    try {
      if (!in_epoch_) {
        loader_->loader_.begin_epoch(false);
        in_epoch_ = has_data_ = true;
        if (!batch_) batch_ = options_.spare;
      }
      if (has_data_) {
        has_data_ = loader_->advance();
        if (!has_data_) loader_->loader_.hold_end(true);
      }
      if (!has_data_) return batch_ ? 0 : -std::numeric_limits<double>::infinity();
      batch_ = loader_->batch_;
      const double weight = options_.weight ? options_.weight(*batch_) : 1;
      loading::check_join_weight(weight);
      return weight;
    } catch (...) {
      in_epoch_ = false;
      try {
        mean_(std::numeric_limits<double>::quiet_NaN());
      } catch (...) {  // the first exception is the one to report
      }
      throw;
    }
  }

  std::function<double(double)> mean_;
  std::shared_ptr<DataLoader<Batch>> loader_;
  JoinOptions<Batch> options_;
  std::shared_ptr<Batch> batch_;  // the last batch that this rank got
  double scale_ = 0;
  bool in_epoch_ = false, has_data_ = false;
};

}  // namespace gannet
