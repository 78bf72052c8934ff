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

namespace gannet::accelerators {

// How the fake's bus behaves.
struct Bus {
  uint64_t delay_us = 0;          // each copy, and each collective, first sleeps a pseudo-random time up to it
  uint64_t seed = 0;              // of these times
  uint64_t bytes_per_second = 0;  // of one queue; 0: as fast as memory is
  uint64_t failing_copy = 0;      // this copy of each queue fails, counted from 1; 0: none
};

// What went wrong in a queue. Shared by the queue, its events, and the queues that waited for those.
struct Mishap {
  explicit Mishap(sdk::Failure failure) : failure(std::move(failure)) {}
  const sdk::Failure failure;
  std::atomic<bool> is_told{false};  // to the host
};

// The state behind an event: a point in a queue's work that it reaches once.
class Moment {
 public:
  void reach(std::shared_ptr<Mishap> mishap);
  // Waits for the queue. Null when all before it went well.
  std::shared_ptr<Mishap> wait_reached();
  bool wait_reached_for(std::chrono::milliseconds limit);  // whether it is
  bool is_reached();

 private:
  std::mutex mutex_;
  std::condition_variable reached_;
  bool is_reached_ = false;
  std::shared_ptr<Mishap> mishap_;
};

class FakeEvent {
 public:
  explicit FakeEvent(std::shared_ptr<Moment> moment) : moment_(std::move(moment)) {}
  bool is_over();
  void wait();
  void block(void* stream);  // a queue of this device, which is all that it has for a stream; null: the caller, who computes
  const std::shared_ptr<Moment>& moment() const { return moment_; }

 private:
  std::shared_ptr<Moment> moment_;
};

class FakeQueue {
 public:
  // `number` makes the delays of each queue its own, and the same in every run with the bus's seed.
  FakeQueue(const sdk::HostServices& host, std::string name, const Bus& bus, uint64_t number);
  ~FakeQueue();  // when its work is over

  void copy(void* to, const void* from, uint64_t bytes);
  // Late, as a copy is. A Failure that it throws ends the queue's work.
  void run_late(std::function<void()> work);
  FakeEvent record();
  void wait(const FakeEvent& event);
  void wait_stream(void* stream);  // null: compute, which was over when its call returned

 private:
  void give(std::function<void()> work);
  void run();
  uint64_t lateness();
  void do_copy(void* to, const void* from, uint64_t bytes);

  const sdk::HostServices& host_;
  const std::string name_;
  const Bus bus_;

  // The worker's own.
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
