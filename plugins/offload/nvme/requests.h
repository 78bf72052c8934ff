// The open requests. Callers add requests and wait for them; workers take pieces.
//
// A request is cut at multiples of the block size in the region, so that a piece is a block or a
// part of one. Pieces are handed out in order, to any worker with a free slot. One lock guards
// everything; it is taken per batch of pieces, not per byte.
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
  uint64_t pieces_open = 0;        // not done yet, taken by a worker or not
  std::optional<Failure> failure;  // the first one
};

struct TransferPiece {
  Work* work = nullptr;
  Region* region = nullptr;
  char* buffer = nullptr;  // [bytes]
  uint64_t offset = 0, bytes = 0;
  bool is_write = false;
};

struct PieceOutcome {
  TransferPiece piece;
  std::optional<Failure> failure;
};

class Requests {
 public:
  // ---- Callers, any thread
  Work* add(Region& region, uint64_t offset, char* buffer, uint64_t bytes, bool is_write);
  void wait(Work* work);                // deletes the work; throws its failure
  void wait_for(const Region& region);  // until the region has no open requests

  // ---- Workers
  // Appends up to `limit` pieces. With `may_sleep`, waits for one; returns none once close() was
  // called and all pieces are taken.
  void take(size_t limit, bool may_sleep, std::vector<TransferPiece>& pieces);
  void done(const std::vector<PieceOutcome>& outcomes);
  void close();

 private:
  bool finish(const PieceOutcome& outcome);  // true if its work is over

  std::mutex mutex_;
  std::condition_variable arrived_, finished_;
  std::deque<TransferPiece> queue_;  // the remaining range of each request
  std::unordered_map<Work*, std::unique_ptr<Work>> works_;
  bool closed_ = false;
};

}  // namespace nvme
