// The open requests. Callers add requests and wait for them; workers take pieces.
//
// A request is cut at multiples of the block size in the region, so that a piece is a block or a
// part of one. Pieces are handed out in order, to any worker with a free slot. One lock guards
// everything; workers take it once per batch of pieces, not once per piece.
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
  uint64_t pieces_open = 0;        // pieces that are not done yet, whether or not a worker has taken them
  std::optional<Failure> failure;  // the first failure
};

struct TransferPiece {
  Work* work = nullptr;
  Region* region = nullptr;
  char* buffer = nullptr;  // the memory of the piece, `bytes` long
  uint64_t offset = 0, bytes = 0;
  bool is_write = false;
};

struct PieceOutcome {
  TransferPiece piece;
  std::optional<Failure> failure;
};

class Requests {
 public:
  // ---- For callers, on any thread
  Work* add(Region& region, uint64_t offset, char* buffer, uint64_t bytes, bool is_write);
  void wait(Work* work);                // deletes the work; throws its failure
  void wait_for(const Region& region);  // waits until the region has no open requests

  // ---- For workers
  // Appends up to `limit` pieces. With `may_sleep`, waits until there is one; appends none once
  // close() was called and all pieces are taken.
  void take(size_t limit, bool may_sleep, std::vector<TransferPiece>& pieces);
  void done(const std::vector<PieceOutcome>& outcomes);
  void close();

 private:
  bool finish(const PieceOutcome& outcome);  // returns true if the piece's work is over

  std::mutex mutex_;
  std::condition_variable arrived_, finished_;
  std::deque<TransferPiece> queue_;  // for each request, the range that is not yet cut into pieces
  std::unordered_map<Work*, std::unique_ptr<Work>> works_;
  bool closed_ = false;
};

}  // namespace nvme
