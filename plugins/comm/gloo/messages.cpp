#include "messages.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <exception>

namespace gannet_gloo {

using gannet::sdk::Failure;

struct Messages::Batch {
  std::vector<std::unique_ptr<Transfer>> transfers;
  std::string doing;
  std::function<void()> then;

  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;
  std::exception_ptr failure;

  void finish(std::exception_ptr thrown) {
    {
      const std::lock_guard lock(mutex);
      failure = std::move(thrown);
      is_over = true;
    }
    changed.notify_all();
  }
};

namespace {

// A failure of the batch, in its own words.
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
  changed_.notify_all();
  for (auto& waiter : waiters_) waiter.thread.join();
}

std::unique_ptr<Work> Messages::watch(std::vector<std::unique_ptr<Transfer>> transfers, const std::string& doing,
                                      std::function<void()> then) {
  auto batch = std::make_shared<Batch>();
  batch->transfers = std::move(transfers);
  batch->doing = doing;
  batch->then = std::move(then);
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw Failure(GANNET_PEER_LOST, doing + " cannot start: the group was aborted");
    auto idle = std::find_if(waiters_.begin(), waiters_.end(), [](const Waiter& waiter) { return !waiter.batch; });
    if (idle == waiters_.end()) {
      idle = waiters_.emplace(waiters_.end());
      sigset_t all, before;  // the program's signals are for the program's threads
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
      idle->thread = std::thread([this, &waiter = *idle] {
        pthread_setname_np(pthread_self(), "gannet-message");
        serve(waiter);
      });
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    idle->batch = batch;
  }
  changed_.notify_all();

  class Pending : public Work {
   public:
    explicit Pending(std::shared_ptr<Batch> batch) : batch_(std::move(batch)) {}
    bool wait(uint64_t timeout_ms) override {
      std::unique_lock lock(batch_->mutex);
      if (!batch_->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), [this] { return batch_->is_over; }))
        return false;
      if (batch_->failure) std::rethrow_exception(batch_->failure);
      return true;
    }
    bool is_over() override {
      const std::lock_guard lock(batch_->mutex);
      return batch_->is_over;
    }

   private:
    std::shared_ptr<Batch> batch_;
  };
  return std::make_unique<Pending>(batch);
}

void Messages::abort() {
  std::unique_lock lock(mutex_);
  aborted_ = true;
  for (auto& waiter : waiters_)
    if (waiter.batch)
      for (auto& transfer : waiter.batch->transfers) transfer->abort();
  changed_.wait(lock, [this] {
    return std::none_of(waiters_.begin(), waiters_.end(), [](const Waiter& waiter) { return waiter.batch != nullptr; });
  });
}

void Messages::serve(Waiter& waiter) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || waiter.batch; });
    if (!waiter.batch) return;
    const std::shared_ptr<Batch> batch = waiter.batch;
    lock.unlock();
    run(*batch);
    lock.lock();
    waiter.batch.reset();
    changed_.notify_all();
  }
}

void Messages::run(Batch& batch) {
  std::exception_ptr thrown;
  for (auto& transfer : batch.transfers) {
    try {
      transfer->wait();
    } catch (...) {  // the first failure ends the batch: a peer that failed as well would never send the rest
      const std::lock_guard lock(mutex_);
      if (thrown) continue;
      thrown = failure_of(batch.doing, aborted_);
      for (auto& other : batch.transfers) other->abort();
    }
  }
  {
    const std::lock_guard lock(mutex_);
    batch.transfers.clear();  // Gloo lets go of the caller's memory here
  }
  try {
    if (!thrown && batch.then) batch.then();
  } catch (...) {
    thrown = failure_of(batch.doing, false);
  }
  batch.finish(thrown);
}

}  // namespace gannet_gloo
