#include "data/stream.h"

#include <string>
#include <utility>

#include "base/format.h"
#include "data/failure.h"

namespace gannet::loading {

StreamEpoch::StreamEpoch(const Source& source, CollateFunction collate, const LoaderOptions& options, const DataCursor& start,
                         std::atomic<int64_t>* leftover)
    : source_(source),
      collate_(std::move(collate)),
      batch_size_(static_cast<size_t>(options.batch_size)),
      drop_last_(options.drop_last),
      multiple_(static_cast<size_t>(options.micro_batches_multiple)),
      start_(start),
      leftover_(leftover) {}

PreparedBatch StreamEpoch::make() {
  try {
    if (!reading_.next) open();
    // With a multiple above 1, a group of micro-batches is returned only when it is complete.
    while (group_.empty() && !over_) fill();
  } catch (...) {
    rethrow_with(formatted("reading the stream failed in micro-batch {} of epoch {}", read_, start_.epoch));
  }
  if (group_.empty()) return {.batch = nullptr, .state = end_state_, .ended = true};
  PreparedBatch made = std::move(group_.front());
  group_.pop_front();
  return made;
}

void StreamEpoch::open() {
  reading_ = source_.open();
  if (!start_.state.is_null()) {
    read_ = start_.micro_batches;
    if (reading_.seek) reading_.seek(start_.state);  // otherwise the source itself was moved there, or is still there
    return;
  }
  // Without a saved state, the stream is read from its beginning, and the batches that were given
  // before the resume are dropped.
  for (; read_ < start_.micro_batches; ++read_)
    if (PreparedBatch skipped = read(); !skipped.batch) return end(std::move(skipped));
}

PreparedBatch StreamEpoch::read() {
  for (;;) {
    Any item = reading_.next(batch_size_);
    if (item && collate_) {
      if (drop_last_ && source_.count(item.get()) < batch_size_) continue;
      item = collate_(item.get());
    }
    return {std::move(item), reading_.cursor ? reading_.cursor() : Value(), reading_.cursor && reading_.over()};
  }
}

void StreamEpoch::fill() {
  // After a resume, the first group is the rest of the group in which the run stopped.
  const size_t wanted = multiple_ - static_cast<size_t>(read_) % multiple_;
  std::deque<PreparedBatch> group;
  while (group.size() < wanted) {
    PreparedBatch made = read();
    if (!made.batch) {
      leftover_->store(static_cast<int64_t>(group.size()));
      return end(std::move(made));
    }
    ++read_;
    group.push_back(std::move(made));
  }
  group_ = std::move(group);
}

void StreamEpoch::end(PreparedBatch last) {
  over_ = true;
  end_state_ = std::move(last.state);
}

}  // namespace gannet::loading
