#include "queue.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <cstring>

namespace gannet::accelerators {

using sdk::Failure;

// ---- QueuePoint ------------------------------------------------------------------------------------------------------

void QueuePoint::reach(std::shared_ptr<Mishap> mishap) {
  {
    const std::lock_guard lock(mutex_);
    is_reached_ = true;
    mishap_ = std::move(mishap);
  }
  reached_.notify_all();
}

std::shared_ptr<Mishap> QueuePoint::wait_reached() {
  std::unique_lock lock(mutex_);
  reached_.wait(lock, [&] { return is_reached_; });
  return mishap_;
}

bool QueuePoint::wait_reached_for(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return reached_.wait_for(lock, limit, [&] { return is_reached_; });
}

bool QueuePoint::is_reached() {
  const std::lock_guard lock(mutex_);
  return is_reached_;
}

// ---- FakeEvent -------------------------------------------------------------------------------------------------------

bool FakeEvent::is_over() {
  if (!moment_->is_reached()) return false;
  wait();
  return true;
}

void FakeEvent::wait() {
  const std::shared_ptr<Mishap> mishap = moment_->wait_reached();
  if (!mishap) return;
  mishap->is_told = true;
  throw mishap->failure;
}

void FakeEvent::block(void* stream) {
  if (stream)
    static_cast<FakeQueue*>(stream)->wait(*this);
  else
    wait();
}

// ---- FakeQueue -------------------------------------------------------------------------------------------------------

FakeQueue::FakeQueue(const sdk::HostServices& host, std::string name, const Bus& bus, uint64_t number)
    : host_(host),
      name_(std::move(name)),
      bus_(bus),
      random_(static_cast<std::minstd_rand::result_type>(bus.seed * 7919 + number)) {
  // Blocks all signals for the worker, so that the program's own threads receive them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    worker_ = std::thread([this] { run(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

FakeQueue::~FakeQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  given_.notify_one();
  worker_.join();
  if (mishap_ && !mishap_->is_told.exchange(true))
    host_.warn("queue '" + name_ +
               "' of the fake device ended with a failure that was never queried: " + mishap_->failure.what());
}

void FakeQueue::give(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  given_.notify_one();
}

void FakeQueue::run() {
  pthread_setname_np(pthread_self(), "gannet-fake");
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      given_.wait(lock, [&] { return !work_.empty() || is_closing_; });
      if (work_.empty()) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
}

void FakeQueue::copy(void* to, const void* from, uint64_t bytes) {
  if (!to || !from) throw Failure(GANNET_INVALID_ARGUMENT, "a copy needs two addresses, and one of them is null");
  give([this, to, from, bytes] {
    if (!mishap_) do_copy(to, from, bytes);
  });
}

uint64_t FakeQueue::lateness() { return bus_.delay_us ? random_() % (bus_.delay_us + 1) : 0; }

void FakeQueue::run_late(std::function<void()> work) {
  give([this, work = std::move(work)] {
    if (mishap_) return;
    if (const uint64_t microseconds = lateness()) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
    try {
      work();
    } catch (const Failure& failure) {
      mishap_ = std::make_shared<Mishap>(failure);
    } catch (const std::exception& error) {
      mishap_ = std::make_shared<Mishap>(Failure(GANNET_INTERNAL, error.what()));
    }
  });
}

// Sleeps, and then copies everything at once, so that reading the target or writing the source too
// early gives wrong results.
void FakeQueue::do_copy(void* to, const void* from, uint64_t bytes) {
  const uint64_t number = ++copies_;
  uint64_t microseconds = lateness();
  if (bus_.bytes_per_second)
    microseconds += static_cast<uint64_t>(1e6 * static_cast<double>(bytes) / static_cast<double>(bus_.bytes_per_second));
  if (microseconds) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  if (number != bus_.failing_copy) {
    std::memcpy(to, from, bytes);
    return;
  }
  mishap_ = std::make_shared<Mishap>(Failure(GANNET_IO_ERROR, "copy " + std::to_string(number) + " of queue '" + name_ +
                                                                  "', of " + std::to_string(bytes) +
                                                                  " bytes, failed, as the parameter failing_copy asks"));
}

FakeEvent FakeQueue::record() {
  auto moment = std::make_shared<QueuePoint>();
  give([this, moment] { moment->reach(mishap_); });
  return FakeEvent(std::move(moment));
}

// An event is always recorded before another queue can wait for it, so queues cannot deadlock.
void FakeQueue::wait(const FakeEvent& event) {
  give([this, moment = event.moment()] {
    auto mishap = moment->wait_reached();
    if (!mishap_) mishap_ = std::move(mishap);
  });
}

void FakeQueue::wait_stream(void* stream) {
  if (stream) wait(static_cast<FakeQueue*>(stream)->record());
}

}  // namespace gannet::accelerators
