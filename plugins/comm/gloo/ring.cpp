#include "ring.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <gannet/sdk_threads.hpp>

namespace gannet_gloo {
namespace {

using gannet::sdk::Failure;

constexpr uint64_t kSegmentBytes = 1 << 20;

}  // namespace

struct Ring::Job {
  const char* send;
  char* recv;
  uint64_t part_bytes, item_bytes;
  uint32_t dtype, op;
  double final_factor;  // multiplies the finished sum
  std::string doing;

  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr failure;

  void combine(void* into, const void* other, uint64_t bytes) const {
    gannet::sdk::combine(into, other, bytes / item_bytes, dtype, op);
  }
  void finish(std::exception_ptr thrown) {
    {
      std::lock_guard lock(mutex);
      failure = std::move(thrown);
      done = true;
    }
    changed.notify_all();
  }
};

Ring::Ring(uint32_t rank, uint32_t size, std::unique_ptr<Link> link) : rank_(rank), size_(size), link_(std::move(link)) {
  const gannet::sdk::BlockSignals blocked;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "gannet-ring");
    serve();
  });
}

Ring::~Ring() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::unique_ptr<Work> Ring::start(const Collective& args, const std::string& doing) {
  auto job = std::make_shared<Job>();
  job->send = static_cast<const char*>(args.send);
  job->recv = static_cast<char*>(args.recv);
  job->item_bytes = args.element_bytes();
  job->part_bytes = args.bytes();
  job->dtype = args.dtype;
  job->op = args.reduce_op;
  job->final_factor = args.final_factor();
  job->doing = doing;
  {
    std::lock_guard lock(mutex_);
    if (aborted_) throw Failure(GANNET_PEER_LOST, doing + " cannot start: the group was aborted");
    jobs_.push_back(job);
  }
  changed_.notify_all();

  class RingWork : public Work {
   public:
    explicit RingWork(std::shared_ptr<Job> job) : job_(std::move(job)) {}
    bool wait(uint64_t timeout_ms) override {
      std::unique_lock lock(job_->mutex);
      if (!job_->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), [this] { return job_->done; })) return false;
      if (job_->failure) std::rethrow_exception(job_->failure);
      return true;
    }
    bool is_over() override {
      const std::lock_guard lock(job_->mutex);
      return job_->done;
    }

   private:
    std::shared_ptr<Job> job_;
  };
  return std::make_unique<RingWork>(job);
}

void Ring::abort() {
  std::unique_lock lock(mutex_);
  aborted_ = true;
  for (auto& job : jobs_)
    job->finish(std::make_exception_ptr(Failure(GANNET_PEER_LOST, job->doing + " was aborted by this rank")));
  jobs_.clear();
  if (waited_) waited_->abort();
  changed_.wait(lock, [this] { return !busy_; });
}

void Ring::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::shared_ptr<Job> job = jobs_.front();
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr thrown;
    try {
      run(*job);
    } catch (const std::bad_alloc&) {
      thrown = std::make_exception_ptr(Failure(GANNET_OUT_OF_MEMORY, job->doing + ": no memory for a part of it"));
    } catch (const Failure& failure) {
      thrown = std::make_exception_ptr(Failure(failure.status(), job->doing + " failed: " + failure.what()));
    } catch (const std::exception& error) {
      thrown = std::make_exception_ptr(
          Failure(GANNET_PEER_LOST, job->doing + " failed because another rank ended or closed its connection: " + error.what()));
    }
    lock.lock();
    if (thrown && aborted_) thrown = std::make_exception_ptr(Failure(GANNET_PEER_LOST, job->doing + " was aborted by this rank"));
    job->finish(thrown);
    busy_ = false;
    changed_.notify_all();
  }
}

// Waits for a transfer. abort() can interrupt the wait.
void Ring::wait(std::unique_ptr<Transfer>& transfer) {
  if (!transfer) return;
  {
    std::lock_guard lock(mutex_);
    if (aborted_) throw Failure(GANNET_PEER_LOST, "aborted");
    waited_ = transfer.get();
  }
  struct WaitedTransferReset {
    Ring& ring;
    ~WaitedTransferReset() {
      std::lock_guard lock(ring.mutex_);
      ring.waited_ = nullptr;
    }
  } reset{*this};
  transfer->wait();
}

// A segment of a part, with its transfers in the current step.
struct Ring::Segment {
  uint64_t begin, bytes;
  std::unique_ptr<Transfer> sent, received;
};

void Ring::run(Job& job) {
  const uint64_t segment_bytes = kSegmentBytes / job.item_bytes * job.item_bytes;
  const auto own_part = [&](uint32_t step) { return job.send + (rank_ + 2 * size_ - 2 - step) % size_ * job.part_bytes; };
  // The last part to arrive is this rank's own. If the operation is in place, that part must not
  // overwrite the values that it is added to.
  const uint32_t last = size_ - 2;
  const bool is_in_place = job.recv == own_part(last);
  for (auto& buffer : scratch_)
    if ((size_ > 2 || is_in_place) && buffer.size() < job.part_bytes) buffer.resize(job.part_bytes);
  const auto place = [&](uint32_t step) { return step == last && !is_in_place ? job.recv : scratch_[step % 2].data(); };

  std::vector<Segment> segments;
  for (uint64_t begin = 0; begin < job.part_bytes; begin += segment_bytes)
    segments.push_back({begin, std::min(segment_bytes, job.part_bytes - begin), nullptr, nullptr});
  const char* first = job.send + (rank_ + size_ - 1) % size_ * job.part_bytes;
  for (auto& segment : segments) {
    segment.received = link_->receive(place(0) + segment.begin, segment.bytes);
    segment.sent = link_->send(first + segment.begin, segment.bytes);
  }
  for (uint32_t step = 0; step + 1 < size_; ++step) {
    for (auto& segment : segments) {
      wait(segment.received);
      char* sum = place(step) + segment.begin;
      if (step == last && is_in_place)
        job.combine(job.recv + segment.begin, sum, segment.bytes);
      else
        job.combine(sum, own_part(step) + segment.begin, segment.bytes);
      wait(segment.sent);
      if (step == last) {
        gannet::sdk::scale(job.recv + segment.begin, segment.bytes / job.item_bytes, job.dtype, job.final_factor);
        continue;
      }
      segment.received = link_->receive(place(step + 1) + segment.begin, segment.bytes);
      segment.sent = link_->send(sum, segment.bytes);
    }
  }
}

}  // namespace gannet_gloo
