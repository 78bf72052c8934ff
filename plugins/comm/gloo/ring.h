// A reduce-scatter that moves each byte once: N ranks in a ring, N-1 steps, in each of which a rank sends one part of N to its
// successor and adds what comes from its predecessor to its own part. c10d's Gloo has only one that moves as much as an
// all-reduce.
//
//   rank r sends part r-1, receives part r-2 and adds its own; sends that sum; ... the last that comes is part r, whole.
//
// Parts travel in segments, so that a segment is added while the next one is on its way.
#pragma once

#include <gannet/abi.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "group.h"
#include "messages.h"

namespace gannet_gloo {

// To the neighbours in the ring.
class Link {
 public:
  virtual ~Link() = default;
  virtual std::unique_ptr<Transfer> send(const void* from, uint64_t bytes) = 0;  // to rank + 1, in the order of the calls
  virtual std::unique_ptr<Transfer> receive(void* to, uint64_t bytes) = 0;       // from rank - 1, in the order of the calls
};

// Runs reduce-scatters one after the other on a thread of its own, which takes no signal. Same order on every rank.
class Ring {
 public:
  Ring(uint32_t rank, uint32_t size, std::unique_ptr<Link> link);
  ~Ring();  // waits for what runs, unless aborted

  // A reduce-scatter of equal parts whose partial sums may be rounded to their type. `doing` begins the sentence of a failure.
  std::unique_ptr<Work> start(const Collective& collective, const std::string& doing);
  // When it returns, no memory of the caller's is touched any more.
  void abort();

 private:
  struct Job;
  struct Segment;
  void serve();
  void run(Job& job);
  void wait(std::unique_ptr<Transfer>& transfer);

  const uint32_t rank_, size_;
  std::unique_ptr<Link> link_;
  std::vector<char> scratch_[2];  // a part each, for what is received in turn; grows to the largest
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  Transfer* waited_ = nullptr;  // by the thread; guarded by mutex_
  bool stop_ = false, aborted_ = false, busy_ = false;
  std::thread thread_;
};

}  // namespace gannet_gloo
