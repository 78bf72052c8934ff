/// Batches for training: sharded over the ranks, shuffled by a seed, prepared ahead by worker threads, on the device.
///
///   auto loader = gannet::make_loader(gannet::Dataset<>(dataset), {.batch_size = 8, .rank = rank, .world_size = size});
///   for (int epoch = 0; epoch < 10; ++epoch) {
///     for (auto& batch : *loader) train(batch.data, batch.target);   // one epoch; the next loop is the next epoch
///   }
///   gannet::RepeatingLoader endless(loader);
///   auto& batch = endless.next();                                    // no end: continues with the next epoch
///
/// gannet::initialize makes a loader from `training_data` and the config. dataset.h says what a dataset can be.
///
/// Which samples, and in which order, is a pure function of (seed, epoch, number of samples, rank, world size), the same on every
/// platform and whatever the number of workers. The order of an epoch is dealt in runs of batch_size: rank r of W takes runs r,
/// r + W, ...; so runs of the program with equal total batch see the same samples in a step and, with equal batch_size, the same
/// ones in each micro-batch (which batch norm sees). Ranks get equal counts: the first samples of the order are taken again at
/// its end or, with drop_last, its last ones are left out. A stream (a dataset without random access) is not sharded or shuffled:
/// each rank gives its own.
#pragma once

#include <gannet/cursor.h>
#include <gannet/dataset.h>
#include <gannet/error.h>
#include <gannet/to_device.h>

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

namespace gannet {

struct LoaderOptions {
  int64_t batch_size = 1;  ///< samples in a micro-batch of one rank
  bool shuffle = true;
  int64_t seed = 0;
  /// Leave out a last micro-batch that is not full, and samples that do not divide by the ranks.
  bool drop_last = false;
  int64_t rank = 0, world_size = 1;
  /// Threads that prepare batches, each using one core; 0: on the caller's thread. A stream has one at most.
  int64_t workers = 1;
  int64_t prefetch = 2;  ///< batches that each worker keeps ready
  /// An epoch gives a multiple of this many micro-batches; the rest is left out, see leftover_micro_batches().
  int64_t micro_batches_multiple = 1;
  at::Device device = at::kCPU;  ///< where batches are when they are given
  /// Run by the worker on every tensor of a batch: to copy it into pinned memory, say.
  std::function<void(at::Tensor&)> on_worker = {};
};

namespace loading {

/// The loader without the batch's type (core/data/loader.cpp).
class Loader {
 public:
  Loader(const Source& source, const Collator& collator, const LoaderOptions& options, std::function<void(void*)> on_batch);
  ~Loader();

  /// Where nothing is left of the epoch that a cursor names, the next one begins; without `skip_empty_rest`, next() then ends it.
  void begin_epoch(bool skip_empty_rest);
  Any next();  ///< null at the epoch's end
  /// After an end: whether this epoch is not over yet for other ranks, so that the cursor stays there.
  void hold_end(bool held);

  bool sized() const;
  int64_t size() const;
  int64_t leftover_micro_batches() const;
  std::optional<int64_t> micro_batches_left() const;
  void set_epoch(int64_t epoch);
  DataCursor cursor() const;
  void seek(const DataCursor& cursor);
  const LoaderOptions& options() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[noreturn]] void fail_repeating_empty();

}  // namespace loading

template <class Batch>
class Join;

/// One rank's batches. Not copied: shared by pointer. Read by one thread at a time.
template <class Batch = Example>
class DataLoader : public ResumableLoader {
 public:
  /// Goes through one epoch, once: a batch lives until the next one is asked for.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = Batch*;
    using reference = Batch&;

    Batch& operator*() const { return *loader_->batch_; }
    Batch* operator->() const { return loader_->batch_.get(); }
    Iterator& operator++() {
      if (!loader_->advance()) loader_ = nullptr;
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(const Iterator& other) const = default;

   private:
    friend class DataLoader;
    explicit Iterator(DataLoader* loader) : loader_(loader) {}
    DataLoader* loader_;  // null: the end
  };

  /// Throws Error(kArgument) on options out of range, a dataset that gives no micro-batch, and samples that cannot be collated.
  DataLoader(const Dataset<Batch>& dataset, const Collate<Batch>& collate, const LoaderOptions& options)
      : loader_(dataset.source(), collate.collator(), options, [on_worker = options.on_worker](void* batch) {
          if (on_worker) loading::walk(*static_cast<Batch*>(batch), on_worker, [](auto&) {});
        }) {}
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// Starts the next epoch (the first, after construction; where the cursor says, after seek). An epoch that was left early is
  /// over, but a stream that nothing restarts (a callable with a cursor, a SampleQueue) continues where it stopped. What get()
  /// or the collate function throws comes out of here and of the iterator, as an Error that names the sample.
  Iterator begin() {
    batch_.reset();
    loader_.begin_epoch(true);
    return Iterator(advance() ? this : nullptr);
  }
  Iterator end() { return Iterator(nullptr); }

  bool sized() const override { return loader_.sized(); }  ///< false for a stream
  /// Micro-batches of a whole epoch, on each rank. 0 for a stream: not known.
  int64_t size() const { return loader_.size(); }
  /// Micro-batches that an epoch leaves out for the sake of micro_batches_multiple; of a stream, those of the last epoch that
  /// ended.
  int64_t leftover_micro_batches() const { return loader_.leftover_micro_batches(); }

  std::optional<int64_t> micro_batches_left() const override { return loader_.micro_batches_left(); }

  void set_epoch(int64_t epoch) { loader_.set_epoch(epoch); }  ///< the epoch that the next begin() starts
  /// What was given counts, the batch in hand included; what workers hold ready does not. After an epoch's end: the next one's
  /// start.
  DataCursor cursor() const override { return loader_.cursor(); }
  /// The next begin() resumes at `cursor`, with its seed; at an epoch's end that is the next epoch. Throws Error(kMismatch) on
  /// the cursor of another dataset.
  void seek(const DataCursor& cursor) override { loader_.seek(cursor); }
  const LoaderOptions& options() const { return loader_.options(); }

 private:
  friend class Join<Batch>;
  bool advance() {
    batch_ = std::static_pointer_cast<Batch>(loader_.next());
    if (batch_) *batch_ = to_device(std::move(*batch_), options().device);
    return batch_ != nullptr;
  }

  loading::Loader loader_;
  std::shared_ptr<Batch> batch_;  // the one in hand
};

template <class Batch>
std::shared_ptr<DataLoader<Batch>> make_loader(const Dataset<Batch>& dataset, const Collate<Batch>& collate,
                                               const LoaderOptions& options) {
  return std::make_shared<DataLoader<Batch>>(dataset, collate, options);
}
template <class Batch>
std::shared_ptr<DataLoader<Batch>> make_loader(const Dataset<Batch>& dataset, const LoaderOptions& options = {}) {
  return make_loader(dataset, Collate<Batch>(), options);
}

/// A loader (any range that can be gone through again) without an end. Nothing at all in it is Error(kArgument), not a spin.
template <class Loader>
class RepeatingLoader {
 public:
  explicit RepeatingLoader(std::shared_ptr<Loader> loader) : loader_(std::move(loader)) {}
  /// `loader` outlives this one.
  explicit RepeatingLoader(Loader& loader) : loader_(&loader, [](Loader*) {}) {}

  decltype(auto) next() {
    if (at_) ++*at_;
    if (!at_ || *at_ == loader_->end()) {
      at_.reset();  // an epoch that throws while it starts is restarted by the next call
      auto first = loader_->begin();
      if (first == loader_->end()) loading::fail_repeating_empty();
      at_.emplace(std::move(first));
    }
    return **at_;
  }

  class Iterator {
   public:
    explicit Iterator(RepeatingLoader* loader) : loader_(loader) {}
    decltype(auto) operator*() const { return **loader_->at_; }
    Iterator& operator++() {
      loader_->next();
      return *this;
    }
    bool operator!=(std::default_sentinel_t) const { return true; }

   private:
    RepeatingLoader* loader_;
  };
  /// Continues where next() is: `for (auto& batch : endless) if (enough) break;`
  Iterator begin() {
    next();
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  std::shared_ptr<Loader> loader_;
  std::optional<decltype(std::declval<Loader&>().begin())> at_;
};

}  // namespace gannet
