// One epoch of a stream, cut into micro-batches.
#pragma once

#include <gannet/data.h>

#include <atomic>
#include <deque>

#include "data/prefetch.h"

namespace gannet::loading {

using CollateFunction = std::function<Any(void* samples)>;  // null: items are batches already

// Follows the stream's own order until its end. Used by one thread at a time.
class StreamEpoch {
 public:
  // Resumes at `start`. `leftover` receives the number of micro-batches at the end that do not fill
  // a whole multiple.
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
  // Micro-batches of a complete group that have not been returned yet.
  std::deque<PreparedBatch> group_;
  // The stream's cursor at its end, from which the next epoch starts.
  Value end_state_;
  // Micro-batches of this epoch, including those before a resume.
  int64_t read_ = 0;
  bool over_ = false;
};

}  // namespace gannet::loading
