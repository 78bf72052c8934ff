// One epoch of a stream, cut into micro-batches.
#pragma once

#include <gannet/data.h>

#include <atomic>
#include <deque>

#include "data/prefetch.h"

namespace gannet::loading {

using CollateFunction = std::function<Any(void* samples)>;  // null: the items already are batches

// Reads the stream in its own order until its end. Only one thread may use it at a time.
class StreamEpoch {
 public:
  // Starts at `start`. `leftover` receives the number of micro-batches at the stream's end that do
  // not fill a whole multiple.
  StreamEpoch(const Source& source, CollateFunction collate, const LoaderOptions& options, const DataCursor& start,
              std::atomic<int64_t>* leftover);
  PreparedBatch make();

 private:
  void open();
  PreparedBatch read();
  void fill();
  void end(PreparedBatch last);

  Source source_;
  CollateFunction collate_;
  size_t batch_size_;
  bool drop_last_;
  size_t multiple_;
  DataCursor start_;
  std::atomic<int64_t>* leftover_;  // owned by the loader, which outlives its epochs
  // One pass over the source, opened by the first make(), on the thread that makes the batches.
  Reading reading_;
  // The micro-batches of a complete group that have not been returned yet.
  std::deque<PreparedBatch> group_;
  // The stream's cursor at its end, from which the next epoch starts.
  Value end_state_;
  // The number of micro-batches read in this epoch, including those before a resume.
  int64_t read_ = 0;
  bool over_ = false;
};

}  // namespace gannet::loading
