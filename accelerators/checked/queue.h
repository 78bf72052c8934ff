// Queues of the checked device. Copies run immediately and advance the queue's own clock, which
// only events and waits synchronise with the streams' clocks. The work of a stand-in for a vendor's
// library (fake/native_stream.h) runs on a thread, since it may wait for other ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "accelerators/fake/queue.h"
#include "checker.h"

namespace gannet::accelerators::checked {

class QueueEvent {
 public:
  QueueEvent(Clock clock, std::optional<FakeEvent> ran) : clock_(std::move(clock)), ran_(std::move(ran)) {}
  bool is_over();
  void wait();
  void block(void* stream);
  const Clock& clock() const { return clock_; }
  void wait_until_run();  // without telling the checker

 private:
  Clock clock_;
  std::optional<FakeEvent> ran_;  // after the library's work on the queue's thread; empty: it has none
};

class CheckedQueue : public NativeStream {
 public:
  CheckedQueue(const sdk::HostServices& host, const std::string& name)
      : host_(host), name_(name), actor_(Checker::get().make_actor("queue '" + name + "'")) {}
  ~CheckedQueue() override;
  CheckedQueue(const CheckedQueue&) = delete;

  void copy(void* to, const void* from, uint64_t bytes);
  QueueEvent record();
  void wait(QueueEvent& event);
  void wait_stream(void* stream);

  NativeStream* stream() { return this; }
  void submit(const char* operation, const std::vector<MemoryUse>& uses, std::function<void()> work) override;
  void* memory(const void* address) override;

 private:
  const sdk::HostServices& host_;
  const std::string name_;
  Actor& actor_;
  std::unique_ptr<FakeQueue> library_;  // the thread of the library's work; null: there was none
};

}  // namespace gannet::accelerators::checked
