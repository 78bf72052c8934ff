// What was asked for and is not done: the callers put requests in and wait for them, the workers take pieces out.
//
// A request is cut at the multiples of the block size in the region, so that a piece is a block or a part of one. Pieces are
// handed out in order, to whichever worker has room. One lock for all of it: it is taken per batch of pieces, not per byte.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "failure.h"
#include "region.h"

namespace nvme {

struct Work {
  uint64_t pieces_open = 0;        // not done yet, taken or not
  std::optional<Failure> failure;  // the first one
};

struct Piece {
  Work* work = nullptr;
  Region* region = nullptr;
  char* buffer = nullptr;  // [bytes]
  uint64_t offset = 0, bytes = 0;
  bool is_write = false;
};

struct Outcome {
  Piece piece;
  std::optional<Failure> failure;
};

class Requests {
 public:
  // ---- by the callers, any thread
  Work* add(Region& region, uint64_t offset, char* buffer, uint64_t bytes, bool is_write);
  void wait(Work* work);                // and forgets it; throws its failure
  void wait_for(const Region& region);  // until nothing is open on it

  // ---- by the workers
  // Appends up to `limit` pieces. With `may_sleep` it waits for one; it comes back without when close() was called and all is
  // taken.
  void take(size_t limit, bool may_sleep, std::vector<Piece>& pieces);
  void done(const std::vector<Outcome>& outcomes);
  void close();

 private:
  bool finish(const Outcome& outcome);  // true when its work is over

  std::mutex mutex_;
  std::condition_variable arrived_, finished_;
  std::deque<Piece> queue_;  // what of each request is not taken
  std::unordered_map<Work*, std::unique_ptr<Work>> works_;
  bool closed_ = false;
};

}  // namespace nvme
