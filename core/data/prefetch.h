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
  struct Item {
    Made made;
    std::exception_ptr error;
  };
  struct Lane {
    std::deque<Item> items;
    std::condition_variable filled, drained;
  };
  void start_threads(int64_t workers);
  void stop();
  void work(int64_t worker);

  std::function<Made(int64_t)> make_;
  std::function<void()> interrupt_;
  size_t ready_;
  std::mutex mutex_;  // guards every lane's items and stopping_
  bool stopping_ = false;
  std::deque<Lane> lanes_;  // a deque: a Lane does not move
  std::vector<std::thread> threads_;
  int64_t taken_ = 0;  // the consumer's
  bool over_ = false;  // the consumer's
};

}  // namespace gannet::loading
