// Produces a sequence of batches ahead of the consumer, on its own threads, and delivers them in
// order.
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

// A batch and, for a stream with a state, the state after it.
struct PreparedBatch {
  Any batch;           // null at the end
  Value state = {};    // the stream's cursor
  bool ended = false;  // whether the state is past the epoch's end
};

// Worker w of W makes the batches w, w + W, ... Therefore no sorting is needed, and only W
// determines which batches a worker makes.
class Prefetch {
 public:
  // make(index) returns a batch, or null after the last one; with workers > 1, several threads call
  // it concurrently. Without workers, next() calls it. At most `ready` finished batches of each
  // worker are queued.
  Prefetch(std::function<PreparedBatch(int64_t index)> make, int64_t workers, int64_t ready,
           std::function<void()> interrupt = {});
  // Calls `interrupt`, then waits for the make() calls that are running.
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;

  // Returns the next batch, or null at the end. If make() threw for this batch, rethrows the
  // exception; the sequence is then over.
  PreparedBatch next();
  bool over() const { return over_; }  // whether next() has returned null or thrown

 private:
  // The result or the exception of one call of make().
  struct Item {
    PreparedBatch made;
    std::exception_ptr error;
  };
  // The finished batches of one worker. `filled` wakes the consumer; `drained` wakes the worker.
  struct Lane {
    std::deque<Item> items;
    std::condition_variable filled, drained;
  };
  void start_threads(int64_t workers);
  void stop();
  void work(int64_t worker);

  // Called without mutex_, so that the workers run at the same time.
  std::function<PreparedBatch(int64_t)> make_;
  // Ends a make() that waits for input. Only stop() calls it, before it joins the workers.
  std::function<void()> interrupt_;
  size_t ready_;
  std::mutex mutex_;  // guards every lane's items and stopping_
  bool stopping_ = false;
  std::deque<Lane> lanes_;  // a deque, since a Lane cannot be moved
  std::vector<std::thread> threads_;
  // The index of the next batch to deliver. With workers, it comes from lane taken_ %
  // lanes_.size().
  int64_t taken_ = 0;  // used only by the consumer
  bool over_ = false;  // used only by the consumer
};

}  // namespace gannet::loading
