// Messages between two ranks, and what is made of them: SEND, RECV, and exchanges of parts that differ in size.
//
// Gloo moves a message by itself once it has been given, but reports its end only to a thread that waits for it, without a limit:
// a wait that times out closes all of the group's connections. Messages from one rank to another complete in the order in which
// they were given, so one thread per direction waits for them in that order, however many are in flight.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "group.h"

namespace gannet_gloo {

// One message under way. Its memory stays until it is over.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual void wait() = 0;   // throws when the peer is lost or abort() was called
  virtual void abort() = 0;  // from another thread; a wait that begins later ends at once, too
};

// The direction of a message, and the numbering that it is part of: messages of one route complete in order.
struct Route {
  uint32_t peer;
  bool is_sent;
  int lane;
  bool operator<(const Route& other) const {
    return std::tie(peer, is_sent, lane) < std::tie(other.peer, other.is_sent, other.lane);
  }
};

struct Message {
  Route route;
  std::unique_ptr<Transfer> transfer;
};

class Messages {
 public:
  Messages() = default;
  ~Messages();  // waits for what is in flight, unless aborted

  // `doing` begins the sentence of a failure. `then` runs when all have arrived, on the thread that saw the last one.
  std::unique_ptr<Work> watch(std::vector<Message> messages, const std::string& doing, std::function<void()> then = {});
  void abort();  // when it returns, no memory of the caller's is touched any more

 private:
  struct Batch;
  struct Waiter {                                                        // of one route
    std::deque<std::pair<Transfer*, std::shared_ptr<Batch>>> in_flight;  // the first is waited for. Guarded by mutex_
    std::thread thread;
  };
  void serve(Waiter& waiter);
  void finish(Batch& batch);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Route, Waiter> waiters_;
  bool stop_ = false, aborted_ = false;
};

}  // namespace gannet_gloo
