// A reduce-scatter with minimal traffic: N ranks in a ring, N-1 steps. In each step a rank sends
// one of N parts to its successor, and adds the part from its predecessor to its own. c10d's Gloo
// only has a reduce-scatter that moves as many bytes as an all-reduce.
//
//   rank r sends part r-1, receives part r-2 and adds its own; sends that sum; ... the last part to
//   arrive is part r, complete.
//
// Parts are sent in segments, so that one segment is added while the next is in flight.
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

// The links to the neighbours in the ring.
class Link {
 public:
  virtual ~Link() = default;
  virtual std::unique_ptr<Transfer> send(const void* from, uint64_t bytes) = 0;  // to rank + 1, in the order of the calls
  virtual std::unique_ptr<Transfer> receive(void* to, uint64_t bytes) = 0;       // from rank - 1, in the order of the calls
};

// Runs reduce-scatters one after another on its own thread, with signals blocked. Their order must
// be the same on every rank.
class Ring {
 public:
  Ring(uint32_t rank, uint32_t size, std::unique_ptr<Link> link);
  ~Ring();  // waits for running jobs, unless aborted

  // Starts a reduce-scatter of equal-sized parts; partial sums may be rounded to the element type.
  // A failure's message starts with `doing`.
  std::unique_ptr<Work> start(const Collective& collective, const std::string& doing);
  // On return, the caller's memory is no longer accessed.
  void abort();

 private:
  struct Job;
  struct Segment;
  void serve();
  void run(Job& job);
  void wait(std::unique_ptr<Transfer>& transfer);

  const uint32_t rank_, size_;
  std::unique_ptr<Link> link_;
  std::vector<char> scratch_[2];  // each holds one part, for alternating receives; they grow to the largest part
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  Transfer* waited_ = nullptr;  // the transfer that the thread waits for; guarded by mutex_
  bool stop_ = false, aborted_ = false, busy_ = false;
  std::thread thread_;
};

}  // namespace gannet_gloo
