/// A bounded queue between threads that make samples (a solver, a simulator) and the loader that
/// trains on them.
///
///   gannet::SampleQueue<gannet::Example> queue(64);                     // at most 64 samples wait
///   auto [engine, optimizer, loader, scheduler] =
///       gannet::initialize(model, {.config = "ds_config.json", .training_data = queue});
///   std::thread producer([&] {
///     for (int64_t i = queue.position(); i < count && queue.push(simulate(i)); ++i) {}
///     queue.close();
///   });
///   for (auto& batch : *loader) ...                                      // ends after close(), once the queue is empty
///   producer.join();
///
/// For items that are complete micro-batches: `.training_data = gannet::Batched(queue.reader())`.
/// Any number of threads may push. An epoch is the samples between two calls of end_epoch(). After
/// a loop that was left early, the next loop continues at its position; no sample is lost. Epochs
/// are never empty: a second end_epoch() in a row does nothing.
///
/// The data cursor of a checkpoint counts the samples that were delivered to training. After
/// load_checkpoint, position() is that count, so start producers after it, from that position.
/// Producers then push again samples that were pushed but not delivered before a crash. With epochs
/// of `n` samples:
///
///   if (queue.position() % n == 0) queue.end_epoch();       // if resumed after an epoch's last sample; otherwise no effect
///   for (int64_t i = queue.position(); i < count && queue.push(simulate(i)); ++i)
///     if ((i + 1) % n == 0) queue.end_epoch();
#pragma once

#include <gannet/source.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace gannet {

namespace loading {

/// The queue with the samples' type erased (core/data/queue.cpp).
class Queue {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Queue(int64_t capacity);
  ~Queue();
  Queue(const Queue&) = delete;

  /// Waits while the queue is full, until `until` at the latest, and then calls `make` and adds its
  /// result. Returns false if it added nothing.
  bool push(const std::function<Any()>& make, std::optional<Clock::time_point> until);
  void end_epoch();
  void close();
  void fail(std::exception_ptr error);
  int64_t position() const;
  int64_t size() const;
  int64_t capacity() const;

  void attach_reader();
  void detach_reader();
  Any pop();  ///< waits; null at an epoch's end
  Value cursor() const;
  void seek(const Value& where);
  void interrupt(bool on);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loading

/// The read end of a SampleQueue, for a loader. Copies share one reader.
template <class Sample>
class QueueReader {
 public:
  explicit QueueReader(std::shared_ptr<loading::Queue> queue) {
    queue->attach_reader();
    queue_ = std::shared_ptr<loading::Queue>(queue.get(), [queue](loading::Queue* left) { left->detach_reader(); });
  }

  std::optional<Sample> operator()() {
    const loading::Any sample = queue_->pop();
    return sample ? std::optional<Sample>(std::move(*static_cast<Sample*>(sample.get()))) : std::nullopt;
  }
  Value cursor() const { return queue_->cursor(); }
  void seek(const Value& where) { queue_->seek(where); }
  void interrupt(bool on) { queue_->interrupt(on); }

 private:
  std::shared_ptr<loading::Queue> queue_;
};

/// See the top of the file. All functions may be called by any thread.
template <class Sample>
class SampleQueue {
 public:
  /// Throws Error(kArgument) on a capacity below 1.
  explicit SampleQueue(int64_t capacity) : queue_(std::make_shared<loading::Queue>(capacity)) {}
  /// Closes the queue. A push that waits returns false.
  ~SampleQueue() { queue_->close(); }
  SampleQueue(const SampleQueue&) = delete;
  SampleQueue& operator=(const SampleQueue&) = delete;

  /// Waits while the queue is full. Returns false if the sample will not be consumed, because the
  /// queue was closed, failed, or lost its loader.
  [[nodiscard]] bool push(const Sample& sample) { return push_until(sample, std::nullopt); }
  [[nodiscard]] bool push(Sample&& sample) { return push_until(std::move(sample), std::nullopt); }
  /// try_push does not wait, and push_for waits no longer than `timeout`. They also return false if
  /// the queue stayed full; `sample` is then unchanged.
  [[nodiscard]] bool try_push(const Sample& sample) { return push_until(sample, loading::Queue::Clock::time_point()); }
  [[nodiscard]] bool try_push(Sample&& sample) { return push_until(std::move(sample), loading::Queue::Clock::time_point()); }
  template <class Rep, class Period>
  [[nodiscard]] bool push_for(const Sample& sample, std::chrono::duration<Rep, Period> timeout) {
    return push_until(sample, loading::Queue::Clock::now() + timeout);
  }
  template <class Rep, class Period>
  [[nodiscard]] bool push_for(Sample&& sample, std::chrono::duration<Rep, Period> timeout) {
    return push_until(std::move(sample), loading::Queue::Clock::now() + timeout);
  }

  void end_epoch() { queue_->end_epoch(); }  ///< samples pushed from now on belong to the next epoch
  void close() { queue_->close(); }          ///< no more samples follow: those already pushed are delivered, then the epoch ends
  /// Closes the queue, and makes the loader throw an Error after the samples that were already
  /// pushed. The Error names the micro-batch and what happened, and has `error` nested in it. Only
  /// the first failure counts.
  ///   try { run(); } catch (...) { queue.fail(std::current_exception()); }
  void fail(std::exception_ptr error) { queue_->fail(std::move(error)); }

  int64_t position() const { return queue_->position(); }  ///< index of the next sample to be pushed, over all epochs
  int64_t size() const { return queue_->size(); }          ///< number of samples that are waiting
  int64_t capacity() const { return queue_->capacity(); }

  /// A reader to make a Dataset from; a Dataset can also be made from the queue itself. Throws
  /// Error(kOrder) while another reader exists.
  QueueReader<Sample> reader() { return QueueReader<Sample>(queue_); }

 private:
  template <class S>
  bool push_until(S&& sample, std::optional<loading::Queue::Clock::time_point> until) {
    const auto queue = queue_;  // the SampleQueue may be destroyed while this waits
    return queue->push([&]() -> loading::Any { return std::make_shared<Sample>(std::forward<S>(sample)); }, until);
  }

  std::shared_ptr<loading::Queue> queue_;
};

}  // namespace gannet
