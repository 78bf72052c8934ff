// Makes a sequence of batches ahead of its consumer, on threads of its own, and hands it over in order.
#pragma once

#include <gannet/dataset.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gannet::loading {

// A batch and, of a stream with a state, how that is after it.
struct Made {
  Any batch;           // null at the end
  Value state = {};    // the stream's cursor
  bool ended = false;  // it lies behind the epoch's end
};

// Worker w of W makes batches w, w + W, ...: the order needs no sorting, and what a worker does depends on W alone.
class Prefetch {
 public:
  // make(index) -> batch, null after the last one; called by several threads at once where workers > 1. Without workers it is
  // called by next() itself. `ready` batches of each worker wait at most.
  Prefetch(std::function<Made(int64_t index)> make, int64_t workers, int64_t ready, std::function<void()> interrupt = {});
  // Waits for the make() calls that run, after it has called `interrupt`.
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;

  // The next batch, null at the end; rethrows what make threw for it, after which the sequence is over.
  Made next();
  bool over() const { return over_; }  // after the null or an exception

 private:
  // What one call of make() gave, or what it threw.
  struct Item {
    Made made;
    std::exception_ptr error;
  };
  // Batches of one worker that wait for the consumer. `filled` wakes the consumer, `drained` the worker.
  struct Lane {
    std::deque<Item> items;
    std::condition_variable filled, drained;
  };
  void start_threads(int64_t workers);
  void stop();
  void work(int64_t worker);

  // Called without mutex_, so that workers overlap.
  std::function<Made(int64_t)> make_;
  // Ends a make() that waits for input. Called by stop() alone, before it joins the workers.
  std::function<void()> interrupt_;
  size_t ready_;
  std::mutex mutex_;  // guards every lane's items and stopping_
  bool stopping_ = false;
  std::deque<Lane> lanes_;  // a deque: a Lane does not move
  std::vector<std::thread> threads_;
  // Index of the next batch to hand over; with workers it comes from lane taken_ % lanes_.size().
  int64_t taken_ = 0;  // the consumer's
  bool over_ = false;  // the consumer's
};

}  // namespace gannet::loading
