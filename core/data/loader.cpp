// The part of the loader that does not depend on the batch type: the contents of an epoch, and the
// position in it.
#include <gannet/data.h>
#include <gannet/error.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "base/format.h"
#include "data/failure.h"
#include "data/prefetch.h"
#include "data/sampler.h"
#include "data/stream.h"

namespace gannet::loading {
namespace {

void require(bool legal, const std::string& what, int64_t found) {
  if (!legal) throw Error(ErrorCode::kArgument, formatted("the loader's {}, not {}", what, found));
}

void check(const LoaderOptions& options) {
  require(options.batch_size >= 1, "batch_size must be at least 1", options.batch_size);
  require(options.world_size >= 1, "world_size must be at least 1", options.world_size);
  require(options.rank >= 0 && options.rank < options.world_size, formatted("rank must be in 0 .. {}", options.world_size - 1),
          options.rank);
  require(options.workers >= 0, "workers must be at least 0", options.workers);
  require(options.prefetch >= 1, "prefetch must be at least 1", options.prefetch);
  require(options.micro_batches_multiple >= 1, "micro_batches_multiple must be at least 1", options.micro_batches_multiple);
}

// Chooses the collate function for this dataset; null if the dataset already returns batches.
CollateFunction choose_collate(const Source& source, const Collator& collator) {
  if (!source.read && !source.open) throw Error(ErrorCode::kArgument, "a loader was asked for without a dataset");
  if (!source.sample) {
    if (!collator.call) return nullptr;
    throw Error(ErrorCode::kArgument, "the dataset gives whole batches, so the collate function would never run",
                "give one of the two: a dataset of single samples, or no collate_fn");
  }
  if (!collator.call) {
    if (source.default_collate) return source.default_collate;
    throw Error(ErrorCode::kArgument,
                formatted("samples of type {} have no default way to become a batch of type {}", type_name(*source.sample),
                          type_name(*source.batch)),
                formatted("give a collate_fn that takes std::vector<{}>", type_name(*source.sample)));
  }
  if (*collator.sample == *source.sample) return collator.call;
  throw Error(ErrorCode::kArgument,
              formatted("the collate function takes samples of type {}, but the dataset's are {}", type_name(*collator.sample),
                        type_name(*source.sample)),
              formatted("let collate_fn take std::vector<{}>", type_name(*source.sample)));
}

// Checks that `cursor` is a position in this dataset.
void check_cursor(const DataCursor& cursor, const Source& source, int64_t samples, bool shuffle) {
  require(cursor.epoch >= 0 && cursor.micro_batches >= 0 && cursor.samples >= 0, "cursor must not be negative",
          std::min({cursor.epoch, cursor.micro_batches, cursor.samples}));
  const std::string place =
      formatted("the cursor (epoch {}, {} micro-batches, {} samples)", cursor.epoch, cursor.micro_batches, cursor.samples);
  const char* const next_step = "resume with the dataset that the run was started with";
  const bool sized = static_cast<bool>(source.read);
  const bool of_stream = cursor.ended || !cursor.state.is_null() || (cursor.micro_batches > 0 && cursor.samples == 0);
  if (sized && of_stream)
    throw Error(ErrorCode::kMismatch, formatted("{} is that of a stream, the dataset has random access", place), next_step);
  if (!sized && (cursor.samples > 0 || cursor.dataset_size > 0))
    throw Error(ErrorCode::kMismatch, formatted("{} is that of a dataset with random access, this one is a stream", place),
                next_step);
  if (sized && cursor.dataset_size > 0 && cursor.dataset_size != samples)
    throw Error(ErrorCode::kMismatch,
                formatted("{} is that of a dataset of {} samples, this one has {}", place, cursor.dataset_size, samples),
                next_step);
  if (sized && cursor.samples > samples)
    throw Error(ErrorCode::kMismatch, formatted("{} is beyond the dataset's {} samples", place, samples), next_step);
  if (sized && cursor.dataset_size > 0 && cursor.samples > 0 && cursor.shuffle != shuffle)
    throw Error(ErrorCode::kMismatch,
                formatted("{} is within an epoch that was {}shuffled, this loader does {}", place, cursor.shuffle ? "" : "not ",
                          shuffle ? "shuffle" : "not"),
                "set gannet.shuffle as it was, until the epoch's end");
  if (!cursor.state.is_null() && !source.has_cursor)
    throw Error(
        ErrorCode::kMismatch,
        formatted("{} holds a stream's own state, and this stream cannot be put there: it has no cursor() and seek()", place),
        next_step);
}

}  // namespace

struct Loader::State {
  Source source;
  CollateFunction collate;
  LoaderOptions options;
  std::function<void(void*)> on_batch;
  int64_t samples = 0;  // number of samples in the dataset

  DataCursor cursor;                     // the current position; between epochs, the start of the next one
  DataCursor at_end;                     // the end of the last epoch that was read completely
  std::optional<DataCursor> after_held;  // what `cursor` would be if it were not held at an end
  bool in_epoch = false;                 // true from begin_epoch until the epoch's end is reached
  bool resuming = false;                 // begin_epoch resumed in the middle of an epoch, and no batch was returned since
  int64_t given = 0;                     // number of micro-batches since begin_epoch
  EpochPartition cut;                    // how the rest of the epoch is divided
  // Written by the thread that reads the stream, and read by the program's thread.
  std::atomic<int64_t> stream_leftover{0};
  std::unique_ptr<Prefetch> prefetch;  // the last member, since its threads use the others

  EpochPartition cut_from(int64_t given_samples) const {
    return {samples,
            given_samples,
            options.batch_size,
            options.rank,
            options.world_size,
            options.drop_last,
            options.micro_batches_multiple};
  }

  // Whether the stream reports its position, and a new epoch does not restart it.
  bool lasting() const { return static_cast<bool>(source.cursor); }

  void move_to(DataCursor where) {
    prefetch.reset();
    in_epoch = false;
    after_held.reset();
    options.seed = where.seed;
    cursor = std::move(where);
  }

  DataCursor epoch_start(int64_t epoch, const Value& state) const {
    DataCursor start{.seed = cursor.seed, .epoch = epoch, .dataset_size = samples, .shuffle = source.read && options.shuffle};
    if (lasting()) start.state = state;
    return start;
  }

  void end_epoch(const Value& state) {
    at_end = cursor;
    if (source.has_cursor) {
      at_end.state = state;
      at_end.ended = true;
    }
    move_to(epoch_start(cursor.epoch + 1, state));
  }

  void start(bool skip_empty_rest) {
    if (cursor.ended && skip_empty_rest) move_to(epoch_start(cursor.epoch + 1, cursor.state));
    in_epoch = true;
    given = 0;
    resuming = skip_empty_rest && (cursor.micro_batches > 0 || cursor.samples > 0);
    if (cursor.ended) return;  // next() finds nothing
    cut = cut_from(cursor.samples);
    const int64_t workers = source.read ? std::min(options.workers, std::max<int64_t>(cut.micro_batches(), 1))
                                        : std::min<int64_t>(options.workers, 1);
    std::function<void()> interrupt;
    if (source.interrupt) {
      source.interrupt(false);
      interrupt = [this] { source.interrupt(true); };
    }
    prefetch = std::make_unique<Prefetch>(source.read ? shards() : stream(), workers, options.prefetch, std::move(interrupt));
  }

  // A batch depends only on its number, so the workers share nothing but the order.
  std::function<PreparedBatch(int64_t)> shards() {
    auto order = std::make_shared<const std::vector<size_t>>(epoch_order(samples, options.shuffle, cursor.seed, cursor.epoch));
    return [this, order, cut = cut, total = cut.micro_batches()](int64_t index) -> PreparedBatch {
      if (index >= total) return {};
      const std::vector<size_t> indices = cut.micro_batch(*order, index);
      Any item = source.read(indices);
      try {
        if (collate) item = collate(item.get());
        if (on_batch) on_batch(item.get());
      } catch (...) {
        rethrow_with(formatted("collating {} failed", list_samples(indices)));
      }
      return {std::move(item)};
    };
  }

  std::function<PreparedBatch(int64_t)> stream() {
    auto epoch = std::make_shared<StreamEpoch>(source, collate, options, cursor, &stream_leftover);
    return [this, epoch](int64_t) {
      PreparedBatch made = epoch->make();
      if (made.batch && on_batch) on_batch(made.batch.get());
      return made;
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
  if (!source.read) {
    if (state.lasting()) state.cursor.state = source.cursor();
    return;
  }
  const std::optional<size_t> samples = source.size();
  if (!samples)
    throw Error(ErrorCode::kArgument, "the dataset has random access but does not say its size", "let size() return it");
  if (*samples == 0) throw Error(ErrorCode::kArgument, "the dataset is empty: its size() is 0");
  state.samples = static_cast<int64_t>(*samples);
  state.cursor = state.epoch_start(0, {});
  const EpochPartition cut = state.cut_from(0);
  if (cut.micro_batches() > 0) return;
  throw Error(ErrorCode::kArgument,
              formatted("an epoch would give no micro-batch: {} samples over {} ranks, micro-batches of {}, in multiples of {}{}",
                        state.samples, options.world_size, options.batch_size, options.micro_batches_multiple,
                        options.drop_last ? ", with drop_last" : ""),
              "use more samples, a smaller micro-batch or fewer accumulation steps");
}

Loader::~Loader() = default;

void Loader::begin_epoch(bool skip_empty_rest) {
  State& state = *state_;
  if (state.after_held && (skip_empty_rest || !state.lasting())) state.move_to(*state.after_held);
  if (state.in_epoch) {  // the last epoch was left early, or failed
    if (!state.lasting()) {
      state.move_to(state.epoch_start(state.cursor.epoch + 1, {}));
    } else if (state.prefetch && !state.prefetch->over()) {  // keep the ready batches: the stream cannot return them again
      state.resuming = skip_empty_rest;
      return;
    }
  }
  state.start(skip_empty_rest);
}

Any Loader::next() {
  State& state = *state_;
  if (!state.in_epoch) return nullptr;
  const bool resuming = std::exchange(state.resuming, false);
  PreparedBatch made = state.prefetch ? state.prefetch->next() : PreparedBatch{.batch = nullptr, .state = state.cursor.state};
  if (!made.batch) {
    state.end_epoch(made.state);
    if (!resuming) return nullptr;
    // The cursor was at the end of an epoch, which is noticed only now.
    state.start(true);
    made = state.prefetch->next();
    if (!made.batch) {
      state.end_epoch(made.state);
      return nullptr;
    }
  }
  ++state.given;
  ++state.cursor.micro_batches;
  state.cursor.state = std::move(made.state);
  state.cursor.ended = made.ended;
  if (sized()) state.cursor.samples = state.cut.given_after(state.given);
  return std::move(made.batch);
}

void Loader::hold_end(bool held) {
  State& state = *state_;
  if (held && !state.after_held) {
    state.after_held = std::exchange(state.cursor, state.at_end);
  } else if (!held && state.after_held) {
    state.move_to(*state.after_held);
  }
}

bool Loader::sized() const { return static_cast<bool>(state_->source.read); }

int64_t Loader::size() const { return sized() ? state_->cut_from(0).micro_batches() : 0; }

int64_t Loader::leftover_micro_batches() const {
  return sized() ? state_->cut_from(0).leftover() : state_->stream_leftover.load();
}

std::optional<int64_t> Loader::micro_batches_left() const {
  if (!sized()) return std::nullopt;
  const State& state = *state_;
  if (!state.in_epoch) return state.cut_from(state.cursor.samples).micro_batches();
  return state.cut.micro_batches() - std::max<int64_t>(state.given - 1, 0);
}

void Loader::set_epoch(int64_t epoch) {
  require(epoch >= 0, "epoch must be at least 0", epoch);
  State& state = *state_;
  if (state.in_epoch && state.lasting()) {
    state.cursor.epoch = epoch;
  } else {
    state.move_to(state.epoch_start(epoch, state.after_held ? state.after_held->state : state.cursor.state));
  }
}

DataCursor Loader::cursor() const { return state_->cursor; }

void Loader::seek(const DataCursor& cursor) {
  State& state = *state_;
  check_cursor(cursor, state.source, state.samples, state.options.shuffle);
  state.move_to(state.cursor);  // stops the threads that read the source
  DataCursor where = state.epoch_start(cursor.epoch, cursor.state);
  where.seed = cursor.seed;
  where.micro_batches = cursor.micro_batches;
  where.samples = cursor.samples;
  where.ended = cursor.ended;
  where.state = cursor.state;
  if (state.lasting()) {
    if (!cursor.state.is_null()) {
      try {
        state.source.seek(cursor.state);
      } catch (...) {
        rethrow_with(formatted("putting the stream to its cursor {} failed", cursor.state.to_json()));
      }
    } else if (cursor.micro_batches == 0) {
      where.state = state.source.cursor();
    }
  }
  state.move_to(where);
}

const LoaderOptions& Loader::options() const { return state_->options; }

}  // namespace gannet::loading
