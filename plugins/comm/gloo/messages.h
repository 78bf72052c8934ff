// Messages between two ranks, and the operations made of them: SEND, RECV, and exchanges of parts
// of different sizes.
//
// Once a message is posted, Gloo moves it on its own, but it reports completion only to a thread
// that waits without a timeout: a wait that times out closes all connections of the group. Messages
// from one rank to another complete in the order in which they were posted. So one thread per
// direction waits for them in that order, however many are in flight.
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

// A message in flight. Its memory must stay valid until the transfer is over.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual void wait() = 0;   // throws if the peer is lost or abort() was called
  virtual void abort() = 0;  // called from another thread; a later wait also ends immediately
};

// The peer, direction and lane of a message. Messages on the same route complete in order.
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
  ~Messages();  // waits for messages in flight, unless aborted

  // A failure's message starts with `doing`. `then` runs once all messages have arrived, on the
  // thread that saw the last one arrive.
  std::unique_ptr<Work> watch(std::vector<Message> messages, const std::string& doing, std::function<void()> then = {});
  void abort();  // on return, the caller's memory is no longer accessed

 private:
  struct Batch;
  struct Waiter {                                                        // one for each route
    std::deque<std::pair<Transfer*, std::shared_ptr<Batch>>> in_flight;  // the thread waits for the first one. Guarded by mutex_
    std::condition_variable changed;                                     // wakes only this waiter's thread
    std::thread thread;
  };
  void serve(Waiter& waiter);
  void finish(Batch& batch);

  std::mutex mutex_;
  std::condition_variable drained_;  // notified when a transfer of an aborted group ends
  std::map<Route, Waiter> waiters_;
  bool stop_ = false, aborted_ = false;
};

}  // namespace gannet_gloo
