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

// Worker w of W makes batches w, w + W, ...: the order needs no sorting, and what a worker does depends on W alone.
class Prefetch {
 public:
  // make(index) -> batch, null after the last one; called by several threads at once where workers > 1. Without workers it is
  // called by next() itself. `ready` batches of each worker wait at most.
  Prefetch(std::function<Any(int64_t index)> make, int64_t workers, int64_t ready);
  // Waits for the make() calls that run.
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;

  // The next batch, null at the end; rethrows what make threw for it, after which the sequence is over.
  Any next();

 private:
  struct Item {
    Any batch;
    std::exception_ptr error;
  };
  struct Lane {
    std::deque<Item> items;
    std::condition_variable filled, drained;
  };
  void start_threads(int64_t workers);
  void stop();
  void work(int64_t worker);

  std::function<Any(int64_t)> make_;
  size_t ready_;
  std::mutex mutex_;  // guards every lane's items and stopping_
  bool stopping_ = false;
  std::deque<Lane> lanes_;  // a deque: a Lane does not move
  std::vector<std::thread> threads_;
  int64_t taken_ = 0;  // the consumer's
  bool over_ = false;  // the consumer's
};

}  // namespace gannet::loading
