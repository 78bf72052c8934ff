/// A bounded queue between threads that make samples (a solver, a simulator) and the loader that trains on them.
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
/// Items that are whole micro-batches: `.training_data = gannet::Batched(queue.reader())`. Any number of threads may push. An
/// epoch is what lies between two calls of end_epoch(); a loop that was left early continues where it was, and loses nothing.
/// An epoch without samples is none: a second end_epoch() in a row does nothing.
///
/// The data cursor of a checkpoint counts the samples that were given to the training. After load_checkpoint, position() is
/// that count: producers start there, and are started after it. What was pushed but not given before a crash is pushed again.
/// With epochs of `n` samples:
///
///   if (queue.position() % n == 0) queue.end_epoch();       // resumed behind an epoch's last sample; else it does nothing
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

/// The queue without the samples' type (core/data/queue.cpp).
class Queue {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Queue(int64_t capacity);
  ~Queue();
  Queue(const Queue&) = delete;

  /// `make` is called once there is room, at the latest at `until`.
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

/// The end of a SampleQueue that a loader reads. Copies are one reader.
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
  /// Closes it. A push that waits returns false.
  ~SampleQueue() { queue_->close(); }
  SampleQueue(const SampleQueue&) = delete;
  SampleQueue& operator=(const SampleQueue&) = delete;

  /// Waits while the queue is full. False: nobody will take it any more, since the queue was closed, failed, or lost its loader.
  [[nodiscard]] bool push(const Sample& sample) { return push_until(sample, std::nullopt); }
  [[nodiscard]] bool push(Sample&& sample) { return push_until(std::move(sample), std::nullopt); }
  /// Does not wait, or not longer than `timeout`. False also where there was no room: `sample` is then as it was.
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

  void end_epoch() { queue_->end_epoch(); }  ///< what is pushed from now on belongs to the next epoch
  void close() { queue_->close(); }          ///< no more samples: what was pushed is still given, then the epoch ends
  /// As close(), but the loader throws after the samples that were pushed before: an Error that names the micro-batch and what
  /// happened, with `error` nested in it. The first failure counts.
  ///   try { run(); } catch (...) { queue.fail(std::current_exception()); }
  void fail(std::exception_ptr error) { queue_->fail(std::move(error)); }

  int64_t position() const { return queue_->position(); }  ///< number of the sample that is pushed next, over all epochs
  int64_t size() const { return queue_->size(); }          ///< samples that wait
  int64_t capacity() const { return queue_->capacity(); }

  /// What a Dataset is made of; it takes a queue as well. Throws Error(kOrder) while there is another reader.
  QueueReader<Sample> reader() { return QueueReader<Sample>(queue_); }

 private:
  template <class S>
  bool push_until(S&& sample, std::optional<loading::Queue::Clock::time_point> until) {
    const auto queue = queue_;  // while this waits, the SampleQueue may end
    return queue->push([&]() -> loading::Any { return std::make_shared<Sample>(std::forward<S>(sample)); }, until);
  }

  std::shared_ptr<loading::Queue> queue_;
};

}  // namespace gannet
