#include "messages.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <gannet/sdk_threads.hpp>

namespace gannet_gloo {

using gannet::sdk::Failure;

// The messages of one call.
struct Messages::Batch {
  std::string doing;
  std::function<void()> then;
  std::vector<std::unique_ptr<Transfer>> transfers;  // this and the next two members are guarded by Messages::mutex_
  size_t pending = 0;
  std::exception_ptr failure;

  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;        // this and outcome are guarded by mutex
  std::exception_ptr outcome;  // null for success
};

namespace {

// Turns the current exception into a failure of the batch.
std::exception_ptr failure_of(const std::string& doing, bool aborted) {
  if (aborted) return std::make_exception_ptr(Failure(GANNET_PEER_LOST, doing + " was aborted by this rank"));
  try {
    throw;
  } catch (const Failure& failure) {
    return std::make_exception_ptr(Failure(failure.status(), doing + " failed: " + failure.what()));
  } catch (const std::bad_alloc&) {
    return std::make_exception_ptr(Failure(GANNET_OUT_OF_MEMORY, doing + ": out of memory"));
  } catch (const std::exception& error) {
    return std::make_exception_ptr(
        Failure(GANNET_PEER_LOST, doing + " failed because another rank ended or closed its connection: " + error.what()));
  }
}

}  // namespace

Messages::~Messages() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  for (auto& [route, waiter] : waiters_) waiter.changed.notify_one();
  for (auto& [route, waiter] : waiters_) waiter.thread.join();
}

std::unique_ptr<Work> Messages::watch(std::vector<Message> messages, const std::string& doing, std::function<void()> then) {
  auto batch = std::make_shared<Batch>();
  batch->doing = doing;
  batch->then = std::move(then);
  batch->pending = messages.size();
  if (messages.empty()) finish(*batch);
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw Failure(GANNET_PEER_LOST, doing + " cannot start: the group was aborted");
    for (auto& message : messages) {
      Waiter& waiter = waiters_[message.route];
      waiter.in_flight.emplace_back(message.transfer.get(), batch);
      batch->transfers.push_back(std::move(message.transfer));
      waiter.changed.notify_one();
      if (waiter.thread.joinable()) continue;
      const gannet::sdk::BlockSignals blocked;
      waiter.thread = std::thread([this, &waiter] {
        pthread_setname_np(pthread_self(), "gannet-message");
        serve(waiter);
      });
    }
  }

  class BatchWork : public Work {
   public:
    explicit BatchWork(std::shared_ptr<Batch> batch) : batch_(std::move(batch)) {}
    bool wait(uint64_t timeout_ms) override {
      std::unique_lock lock(batch_->mutex);
      if (!batch_->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), [this] { return batch_->is_over; }))
        return false;
      if (batch_->outcome) std::rethrow_exception(batch_->outcome);
      return true;
    }
    bool is_over() override {
      const std::lock_guard lock(batch_->mutex);
      return batch_->is_over;
    }

   private:
    std::shared_ptr<Batch> batch_;
  };
  return std::make_unique<BatchWork>(batch);
}

void Messages::abort() {
  std::unique_lock lock(mutex_);
  aborted_ = true;
  for (auto& [route, waiter] : waiters_)
    for (auto& [transfer, batch] : waiter.in_flight)
      if (transfer) transfer->abort();
  drained_.wait(lock, [this] {
    return std::all_of(waiters_.begin(), waiters_.end(), [](const auto& one) { return one.second.in_flight.empty(); });
  });
}

void Messages::serve(Waiter& waiter) {
  std::unique_lock lock(mutex_);
  for (;;) {
    waiter.changed.wait(lock, [&] { return stop_ || !waiter.in_flight.empty(); });
    if (waiter.in_flight.empty()) return;
    const auto [transfer, batch] = waiter.in_flight.front();
    lock.unlock();
    std::exception_ptr thrown;
    try {
      transfer->wait();
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    if (thrown && !batch->failure) {  // the first failure ends the batch: a peer that has also failed would never send the rest
      try {
        std::rethrow_exception(thrown);
      } catch (...) {
        batch->failure = failure_of(batch->doing, aborted_);
      }
      for (auto& other : batch->transfers) other->abort();
    }
    if (--batch->pending == 0) {
      waiter.in_flight.front().first = nullptr;  // abort() may run while the lock is free
      batch->transfers.clear();                  // Gloo releases the caller's memory here
      lock.unlock();
      finish(*batch);
      lock.lock();
    }
    waiter.in_flight.pop_front();
    if (aborted_) drained_.notify_all();
  }
}

void Messages::finish(Batch& batch) {
  std::exception_ptr outcome = batch.failure;
  try {
    if (!outcome && batch.then) batch.then();
  } catch (...) {
    outcome = failure_of(batch.doing, /*aborted=*/false);
  }
  {
    const std::lock_guard lock(batch.mutex);
    batch.outcome = outcome;
    batch.is_over = true;
  }
  batch.changed.notify_all();
}

}  // namespace gannet_gloo
