// A worker: a thread with one kernel I/O context and up to queue_depth pieces in flight.
//
// The thread sleeps in the kernel (until a transfer completes) or in Requests (until there is a
// request) and never polls. While pieces are in flight, it computes checksums: for writes that have
// just begun, and for finished reads once other pieces have taken their slots.
#pragma once

#include <libaio.h>

#include <cstddef>
#include <thread>
#include <vector>

#include "options.h"
#include "requests.h"

namespace nvme {

class Worker {
 public:
  Worker(Requests& requests, const Options& options);  // creates the I/O context; start() starts the thread
  void start();
  ~Worker();  // called after Requests::close(); finishes the open requests first
  Worker(const Worker&) = delete;

 private:
  struct Slot {
    iocb control{};
    TransferPiece piece;
    uint64_t bytes_done = 0;
    uint64_t sum = BlockSums::kNone;  // the checksum of a block that is written as a whole
    bool in_flight = false;
  };

  void run();
  void fill();
  void submit();
  void settle();
  void reap();

  void prepare(Slot& slot);
  void advance(Slot& slot, long result);
  void complete(Slot& slot, std::optional<Failure> failure);
  void lose_context(int code);

  Requests& requests_;
  const Options& options_;
  io_context_t context_ = nullptr;
  std::vector<Slot> slots_;             // queue_depth of them
  std::vector<Slot*> idle_;             // slots without a piece
  std::vector<Slot*> ready_;            // slots whose pieces are to be submitted
  std::vector<Slot*> unsummed_;         // writes of this round whose checksum is to be computed
  std::vector<PieceOutcome> finished_;  // pieces to be verified and reported
  size_t in_flight_ = 0;
  std::vector<TransferPiece> taken_;
  std::vector<iocb*> batch_;
  std::vector<io_event> events_;
  std::thread thread_;
};

}  // namespace nvme
