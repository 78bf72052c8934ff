// A queue of the fake device: a worker thread that copies, with real events.
#pragma once

#include <atomic>
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
  uint64_t delay_us = 0;          // each copy first sleeps a pseudo-random time up to it
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
  void block(void*) { wait(); }  // compute is the caller's thread
  const std::shared_ptr<Moment>& moment() const { return moment_; }

 private:
  std::shared_ptr<Moment> moment_;
};

class FakeQueue {
 public:
  // `seed` makes the delays of each queue its own, and the same in every run.
  FakeQueue(const sdk::HostServices& host, std::string name, const Bus& bus, uint64_t seed);
  ~FakeQueue();  // when its work is over

  void copy(void* to, const void* from, uint64_t bytes);
  FakeEvent record();
  void wait(FakeEvent& event);
  void wait_stream(void*) {}  // compute was over when its call returned

 private:
  void give(std::function<void()> work);
  void run();
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
