// Messages between two ranks, and what is made of them: SEND, RECV, and gathers of parts that differ in size.
//
// Gloo moves a message by itself once it was given, but tells of its end only to a thread that waits for it, without a limit:
// a wait that times out closes all of the group's connections. So each batch of messages has a waiter, a thread that is used
// again when its batch is over; as many run as batches are in flight.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "group.h"

namespace gannet_gloo {

// One message under way. Its memory stays until it is over.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual void wait() = 0;   // throws when the peer is lost or abort() was called
  virtual void abort() = 0;  // from another thread
};

class Messages {
 public:
  Messages() = default;
  ~Messages();  // waits for what runs, unless aborted

  // `doing` begins the sentence of a failure. `then` runs when all have arrived, on the waiter.
  std::unique_ptr<Work> watch(std::vector<std::unique_ptr<Transfer>> transfers, const std::string& doing,
                              std::function<void()> then = {});
  void abort();  // when it returns, no memory of the caller's is touched any more

 private:
  struct Batch;
  struct Waiter {
    std::shared_ptr<Batch> batch;  // null: idle. Guarded by mutex_
    std::thread thread;
  };
  void serve(Waiter& waiter);
  void run(Batch& batch);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Waiter> waiters_;
  bool stop_ = false, aborted_ = false;
};

}  // namespace gannet_gloo
