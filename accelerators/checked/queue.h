// Queues of the checked device. Copies run immediately and advance the queue's own clock, which
// only events and waits synchronise with the streams' clocks.
#pragma once

#include <cstdint>
#include <string>

#include "checker.h"

namespace gannet::accelerators::checked {

class QueueEvent {
 public:
  explicit QueueEvent(Clock clock) : clock_(std::move(clock)) {}
  bool is_over();
  void wait();
  void block(void* stream);
  const Clock& clock() const { return clock_; }

 private:
  Clock clock_;
};

class CheckedQueue {
 public:
  explicit CheckedQueue(const std::string& name) : actor_(Checker::get().make_actor("queue '" + name + "'")) {}
  ~CheckedQueue() { Checker::get().end(actor_); }
  CheckedQueue(const CheckedQueue&) = delete;

  void copy(void* to, const void* from, uint64_t bytes);
  QueueEvent record() { return QueueEvent(Checker::get().record(actor_)); }
  void wait(const QueueEvent& event) { Checker::get().wait(actor_, event.clock()); }
  void wait_stream(void* stream);

 private:
  Actor& actor_;
};

}  // namespace gannet::accelerators::checked
