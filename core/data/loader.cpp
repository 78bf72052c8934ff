// The loader without the batch's type: what an epoch consists of, and how far it has come.
#include <gannet/data.h>
#include <gannet/error.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <string>
#include <utility>

#include "data/failure.h"
#include "data/prefetch.h"
#include "data/sampler.h"

namespace gannet::loading {
namespace {

using Collating = std::function<Any(void*)>;

void require(bool legal, const std::string& what, int64_t found) {
  if (!legal) throw Error(ErrorCode::kArgument, "the loader's " + what + ", not " + std::to_string(found));
}

void check(const LoaderOptions& options) {
  require(options.batch_size >= 1, "batch_size must be at least 1", options.batch_size);
  require(options.world_size >= 1, "world_size must be at least 1", options.world_size);
  require(options.rank >= 0 && options.rank < options.world_size,
          "rank must be in 0 .. " + std::to_string(options.world_size - 1), options.rank);
  require(options.workers >= 0, "workers must be at least 0", options.workers);
  require(options.prefetch >= 1, "prefetch must be at least 1", options.prefetch);
  require(options.micro_batches_multiple >= 1, "micro_batches_multiple must be at least 1", options.micro_batches_multiple);
}

// Samples to batch for this dataset: null where it gives batches already.
Collating choose_collate(const Source& source, const Collator& collator) {
  if (!source.read && !source.open) throw Error(ErrorCode::kArgument, "a loader was asked for without a dataset");
  if (!source.sample) {
    if (!collator.call) return nullptr;
    throw Error(ErrorCode::kArgument, "the dataset gives whole batches, so the collate function would never run",
                "give one of the two: a dataset of single samples, or no collate_fn");
  }
  if (!collator.call) {
    if (source.default_collate) return source.default_collate;
    throw Error(ErrorCode::kArgument,
                "samples of type " + type_name(*source.sample) + " have no default way to become a batch of type " +
                    type_name(*source.batch),
                "give a collate_fn that takes std::vector<" + type_name(*source.sample) + ">");
  }
  if (*collator.sample == *source.sample) return collator.call;
  throw Error(ErrorCode::kArgument,
              "the collate function takes samples of type " + type_name(*collator.sample) + ", but the dataset's are " +
                  type_name(*source.sample),
              "let collate_fn take std::vector<" + type_name(*source.sample) + ">");
}

std::string place(int64_t micro_batch, int64_t epoch) {
  return "micro-batch " + std::to_string(micro_batch) + " of epoch " + std::to_string(epoch);
}

// One epoch of a stream: its own order, its own end. Used by one thread at a time.
class StreamEpoch {
 public:
  StreamEpoch(const Source& source, Collating collate, const LoaderOptions& options, const DataCursor& start,
              std::atomic<int64_t>* leftover)
      : count_(source.count),
        collate_(std::move(collate)),
        batch_size_(static_cast<size_t>(options.batch_size)),
        drop_last_(options.drop_last),
        multiple_(static_cast<size_t>(options.micro_batches_multiple)),
        open_(source.open),
        start_(start),
        leftover_(leftover) {}

  Any make() {
    try {
      if (!next_) {
        next_ = open_();
        for (int64_t i = 0; i < start_.micro_batches; ++i, ++read_) read();
      }
      // With a multiple, a group of micro-batches is given once it is complete.
      while (group_.empty() && !over_) fill();
    } catch (...) {
      rethrow_with("reading the stream failed in " + place(read_, start_.epoch));
    }
    if (group_.empty()) return nullptr;
    Any batch = std::move(group_.front());
    group_.pop_front();
    return batch;
  }

 private:
  Any read() {
    for (;;) {
      Any item = next_(batch_size_);
      if (!item || !collate_) return item;
      if (drop_last_ && count_(item.get()) < batch_size_) continue;
      return collate_(item.get());
    }
  }

  void fill() {
    // After a resume the first group is what was left of the one it stopped in.
    const size_t wanted = multiple_ - static_cast<size_t>(read_) % multiple_;
    std::deque<Any> group;
    while (group.size() < wanted) {
      Any batch = read();
      if (!batch) {
        over_ = true;
        leftover_->store(static_cast<int64_t>(group.size()));
        return;
      }
      ++read_;
      group.push_back(std::move(batch));
    }
    group_ = std::move(group);
  }

  std::function<size_t(const void*)> count_;
  Collating collate_;
  size_t batch_size_;
  bool drop_last_;
  size_t multiple_;
  std::function<std::function<Any(size_t)>()> open_;
  DataCursor start_;
  std::atomic<int64_t>* leftover_;  // the loader's: it outlives its epochs
  std::function<Any(size_t)> next_;
  std::deque<Any> group_;
  int64_t read_ = 0;
  bool over_ = false;
};

}  // namespace

struct Loader::State {
  Source source;
  Collating collate;
  LoaderOptions options;
  std::function<void(void*)> on_batch;
  int64_t samples = 0;  // in the dataset

  DataCursor cursor;      // where the reading is or, between epochs, where the next one starts
  bool in_epoch = false;  // from begin_epoch until the end is met
  bool resuming = false;  // nothing was given yet since a seek into an epoch
  int64_t given = 0;      // micro-batches since begin_epoch
  Cut cut;                // of the epoch's rest
  std::atomic<int64_t> stream_leftover{0};
  std::unique_ptr<Prefetch> prefetch;  // the last member: its threads use the others

  Cut cut_from(int64_t given_samples) const {
    return {samples,
            given_samples,
            options.batch_size,
            options.rank,
            options.world_size,
            options.drop_last,
            options.micro_batches_multiple};
  }

  void move_to(const DataCursor& where) {
    prefetch.reset();
    in_epoch = false;
    cursor = where;
    options.seed = where.seed;
  }

  DataCursor next_epoch() const { return {.seed = cursor.seed, .epoch = cursor.epoch + 1}; }

  void start() {
    in_epoch = true;
    given = 0;
    resuming = cursor.micro_batches > 0 || cursor.samples > 0;
    cut = cut_from(cursor.samples);
    const int64_t workers = source.read ? std::min(options.workers, std::max<int64_t>(cut.micro_batches(), 1))
                                        : std::min<int64_t>(options.workers, 1);
    prefetch = std::make_unique<Prefetch>(source.read ? shards() : stream(), workers, options.prefetch);
  }

  // A batch is a function of its number alone: workers share nothing but the order.
  std::function<Any(int64_t)> shards() {
    auto order = std::make_shared<const std::vector<size_t>>(epoch_order(samples, options.shuffle, cursor.seed, cursor.epoch));
    return [this, order, cut = cut, total = cut.micro_batches()](int64_t index) -> Any {
      if (index >= total) return nullptr;
      const std::vector<size_t> indices = cut.micro_batch(*order, index);
      Any item = source.read(indices);
      try {
        if (collate) item = collate(item.get());
        if (on_batch) on_batch(item.get());
      } catch (...) {
        rethrow_with("collating " + list_samples(indices) + " failed");
      }
      return item;
    };
  }

  std::function<Any(int64_t)> stream() {
    auto epoch = std::make_shared<StreamEpoch>(source, collate, options, cursor, &stream_leftover);
    return [this, epoch](int64_t) {
      Any batch = epoch->make();
      if (batch && on_batch) on_batch(batch.get());
      return batch;
    };
  }
};

Loader::Loader(const Source& source, const Collator& collator, const LoaderOptions& options, std::function<void(void*)> on_batch)
    : state_(std::make_unique<State>()) {
  check(options);
  State& state = *state_;
  state.source = source;
  state.options = options;
  state.collate = choose_collate(source, collator);
  state.on_batch = std::move(on_batch);
  state.cursor.seed = options.seed;
  if (!source.read) return;
  const std::optional<size_t> samples = source.size();
  if (!samples)
    throw Error(ErrorCode::kArgument, "the dataset has random access but does not say its size", "let size() return it");
  if (*samples == 0) throw Error(ErrorCode::kArgument, "the dataset is empty: its size() is 0");
  state.samples = static_cast<int64_t>(*samples);
  const Cut cut = state.cut_from(0);
  if (cut.micro_batches() > 0) return;
  throw Error(ErrorCode::kArgument,
              "an epoch would give no micro-batch: " + std::to_string(state.samples) + " samples over " +
                  std::to_string(options.world_size) + " ranks, micro-batches of " + std::to_string(options.batch_size) +
                  ", in multiples of " + std::to_string(options.micro_batches_multiple) +
                  (options.drop_last ? ", with drop_last" : ""),
              "use more samples, a smaller micro-batch or fewer accumulation steps");
}

Loader::~Loader() = default;

void Loader::begin_epoch() {
  State& state = *state_;
  if (state.in_epoch) state.move_to(state.next_epoch());  // left early
  state.start();
}

Any Loader::next() {
  State& state = *state_;
  if (!state.prefetch) return nullptr;
  const bool resuming = std::exchange(state.resuming, false);
  Any batch = state.prefetch->next();
  if (!batch) {
    state.move_to(state.next_epoch());
    if (!resuming) return nullptr;
    // The cursor stood at an epoch's end, which only now shows.
    state.start();
    batch = state.prefetch->next();
    if (!batch) {
      state.move_to(state.next_epoch());
      return nullptr;
    }
  }
  ++state.given;
  ++state.cursor.micro_batches;
  if (sized()) state.cursor.samples = state.cut.given_after(state.given);
  return batch;
}

bool Loader::sized() const { return static_cast<bool>(state_->source.read); }

int64_t Loader::size() const { return sized() ? state_->cut_from(0).micro_batches() : 0; }

int64_t Loader::leftover_micro_batches() const {
  return sized() ? state_->cut_from(0).leftover() : state_->stream_leftover.load();
}

void Loader::set_epoch(int64_t epoch) {
  require(epoch >= 0, "epoch must be at least 0", epoch);
  state_->move_to({.seed = state_->cursor.seed, .epoch = epoch});
}

DataCursor Loader::cursor() const { return state_->cursor; }

void Loader::seek(const DataCursor& cursor) {
  require(cursor.epoch >= 0 && cursor.micro_batches >= 0 && cursor.samples >= 0, "cursor must not be negative",
          std::min({cursor.epoch, cursor.micro_batches, cursor.samples}));
  const std::string place =
      std::to_string(cursor.micro_batches) + " micro-batches and " + std::to_string(cursor.samples) + " samples";
  if ((cursor.micro_batches > 0) != (cursor.samples > 0) && sized())
    throw Error(ErrorCode::kMismatch, "the cursor (" + place + ") is that of a stream, the dataset has random access");
  if (cursor.samples > 0 && !sized())
    throw Error(ErrorCode::kMismatch, "the cursor (" + place + ") is that of a dataset with random access, this one is a stream");
  if (cursor.samples > state_->samples)
    throw Error(ErrorCode::kMismatch,
                "the cursor (" + place + ") lies beyond the dataset's " + std::to_string(state_->samples) + " samples",
                "resume with the dataset that the run was started with");
  state_->move_to(cursor);
}

const LoaderOptions& Loader::options() const { return state_->options; }

}  // namespace gannet::loading
