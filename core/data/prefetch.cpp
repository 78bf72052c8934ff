#include "data/prefetch.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <gannet/sdk_threads.hpp>
#include <utility>

namespace gannet::loading {
namespace {

// OpenMP creates a team of threads for each thread that opens a parallel region, so two workers
// that stack tensors would use twice the cores, in addition to training. LibTorch sets the number
// of threads when a thread first uses it, so the thread must use LibTorch first.
void use_one_core() {
  at::get_num_threads();
  omp_set_num_threads(1);
}

}  // namespace

Prefetch::Prefetch(std::function<PreparedBatch(int64_t)> make, int64_t workers, int64_t ready, std::function<void()> interrupt)
    : make_(std::move(make)),
      interrupt_(std::move(interrupt)),
      ready_(static_cast<size_t>(ready)),
      lanes_(static_cast<size_t>(workers)) {
  try {
    start_threads(workers);
  } catch (...) {  // a thread could not be created
    stop();
    throw;
  }
}

Prefetch::~Prefetch() { stop(); }

void Prefetch::start_threads(int64_t workers) {
  sdk::BlockSignals blocked;
  for (int64_t worker = 0; worker < workers; ++worker) {
    threads_.emplace_back([this, worker] { work(worker); });
    pthread_setname_np(threads_.back().native_handle(), "gannet-data");
  }
}

void Prefetch::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (Lane& lane : lanes_) lane.drained.notify_all();
  // interrupt_() is called after stopping_ is set, so that a worker whose make() it ends does not
  // begin another one.
  if (interrupt_ && !threads_.empty()) interrupt_();
  for (std::thread& thread : threads_) thread.join();
}

void Prefetch::work(int64_t worker) {
  use_one_core();
  Lane& lane = lanes_[static_cast<size_t>(worker)];
  for (int64_t index = worker;; index += static_cast<int64_t>(lanes_.size())) {
    {
      std::unique_lock lock(mutex_);
      lane.drained.wait(lock, [&] { return stopping_ || lane.items.size() < ready_; });
      if (stopping_) return;
    }
    Item item;
    try {
      item.made = make_(index);
    } catch (...) {
      item.error = std::current_exception();
    }
    // The batch is null at the end and after an exception; the item is then the last one of this
    // lane. The other workers reach the end on their own.
    const bool last = !item.made.batch;
    {
      std::lock_guard lock(mutex_);
      lane.items.push_back(std::move(item));
    }
    lane.filled.notify_one();
    if (last) return;
  }
}

PreparedBatch Prefetch::next() {
  if (over_) return {};
  const int64_t index = taken_++;
  over_ = true;  // unless a batch is returned
  Item item;
  if (lanes_.empty()) {
    item.made = make_(index);
  } else {
    Lane& lane = lanes_[static_cast<size_t>(index) % lanes_.size()];
    {
      std::unique_lock lock(mutex_);
      lane.filled.wait(lock, [&] { return !lane.items.empty(); });
      item = std::move(lane.items.front());
      lane.items.pop_front();
    }
    lane.drained.notify_one();
  }
  if (item.error) std::rethrow_exception(item.error);
  over_ = !item.made.batch;
  return std::move(item.made);
}

}  // namespace gannet::loading
