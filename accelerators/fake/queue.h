// A queue of the fake device: a worker thread that copies, with real events.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <gannet/sdk_accelerator.hpp>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "native_stream.h"

namespace gannet::accelerators {

// The behaviour of the fake device's bus.
struct Bus {
  uint64_t delay_us = 0;          // each copy and each collective first sleeps for a pseudo-random time up to this
  uint64_t seed = 0;              // seed of the delays
  uint64_t bytes_per_second = 0;  // per queue; 0: as fast as memory
  uint64_t failing_copy = 0;      // number of the copy that fails in each queue, counted from 1; 0: none
};

// A failure in a queue. It is shared by the queue, its events, and the queues that waited for those
// events.
struct Mishap {
  explicit Mishap(sdk::Failure failure) : failure(std::move(failure)) {}
  const sdk::Failure failure;
  std::atomic<bool> is_told{false};  // whether the host has seen it
};

// The state behind an event: a point in a queue's work that is reached once.
class QueuePoint {
 public:
  void reach(std::shared_ptr<Mishap> mishap);
  // Waits until the point is reached. Returns null if all work before it succeeded.
  std::shared_ptr<Mishap> wait_reached();
  bool wait_reached_for(std::chrono::milliseconds limit);  // returns whether it was reached in time
  bool is_reached();

 private:
  std::mutex mutex_;
  std::condition_variable reached_;
  bool is_reached_ = false;
  std::shared_ptr<Mishap> mishap_;
};

class FakeEvent {
 public:
  explicit FakeEvent(std::shared_ptr<QueuePoint> moment) : moment_(std::move(moment)) {}
  bool is_over();
  void wait();
  void block(void* stream);  // `stream` is a queue of this device, which has no other streams; null: the calling thread
  const std::shared_ptr<QueuePoint>& moment() const { return moment_; }

 private:
  std::shared_ptr<QueuePoint> moment_;
};

class FakeQueue : public NativeStream {
 public:
  // `number` gives each queue its own delays, which are reproducible for the bus's seed.
  FakeQueue(const sdk::HostServices& host, std::string name, const Bus& bus, uint64_t number);
  ~FakeQueue() override;  // waits for the queue's work

  void copy(void* to, const void* from, uint64_t bytes);
  // Runs the work after a delay, like a copy. If it throws, the queue skips all later work.
  void run_late(std::function<void()> work);
  FakeEvent record();
  void wait(const FakeEvent& event);
  void wait_stream(void* stream);  // null: compute, which has already run synchronously
  NativeStream* stream() { return this; }
  void submit(const char*, const std::vector<MemoryUse>&, std::function<void()> work) override { run_late(std::move(work)); }
  void* memory(const void* address) override { return const_cast<void*>(address); }

 private:
  void give(std::function<void()> work);
  void run();
  uint64_t lateness();
  void do_copy(void* to, const void* from, uint64_t bytes);

  const sdk::HostServices& host_;
  const std::string name_;
  const Bus bus_;

  // The following are used only by the worker thread.
  std::minstd_rand random_;
  uint64_t copies_ = 0;
  std::shared_ptr<Mishap> mishap_;

  std::mutex mutex_;
  std::condition_variable given_;
  std::deque<std::function<void()>> work_;
  bool is_closing_ = false;
  std::thread worker_;
};

}  // namespace gannet::accelerators
