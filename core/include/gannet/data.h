/// Batches for training: sharded over the ranks, shuffled by a seed, prepared in advance by worker
/// threads, and moved to the device.
///
///   auto loader = gannet::make_loader(gannet::Dataset<>(dataset), {.batch_size = 8, .rank = rank, .world_size = size});
///   for (int epoch = 0; epoch < 10; ++epoch) {
///     for (auto& batch : *loader) train(batch.data, batch.target);   // one epoch; the next loop is the next epoch
///   }
///   gannet::RepeatingLoader endless(loader);
///   auto& batch = endless.next();                                    // no end: continues with the next epoch
///
/// gannet::initialize makes a loader from `training_data` and the config. dataset.h lists what a
/// dataset can be.
///
/// The choice and order of samples is a pure function of (seed, epoch, number of samples, rank,
/// world size), the same on every platform and for any number of workers. An epoch's order is
/// divided into runs of batch_size: rank r of W takes runs r, r + W, ... Jobs with equal total
/// batch size thus see the same samples in a step and, with equal batch_size, also in each
/// micro-batch (which batch norm sees). Ranks get equal counts: the first samples of the order are
/// repeated at its end or, with drop_last, its last ones are dropped. A stream (a dataset without
/// random access) is not sharded or shuffled: each rank reads its own.
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
  /// Drops a last micro-batch that is incomplete, and the samples that do not divide evenly among the
  /// ranks.
  bool drop_last = false;
  int64_t rank = 0, world_size = 1;
  /// Number of threads that prepare batches, each using one core; 0: the caller's thread does it. A
  /// stream has at most one.
  int64_t workers = 1;
  int64_t prefetch = 2;  ///< batches that each worker keeps ready
  /// The number of micro-batches in an epoch is a multiple of this; the rest are left out, see
  /// leftover_micro_batches().
  int64_t micro_batches_multiple = 1;
  at::Device device = at::kCPU;  ///< the device that batches are moved to
  /// A function that the worker calls on every tensor of a batch, for example to copy it into
  /// pinned memory.
  std::function<void(at::Tensor&)> on_worker = {};
};

namespace loading {

/// The loader with the batch's type erased (core/data/loader.cpp).
class Loader {
 public:
  Loader(const Source& source, const Collator& collator, const LoaderOptions& options, std::function<void(void*)> on_batch);
  ~Loader();

  /// Begins the rest of the cursor's epoch. If nothing is left of it, begins the next epoch, or
  /// without `skip_empty_rest` the empty remainder: the first next() then reports its end.
  void begin_epoch(bool skip_empty_rest);
  Any next();  ///< null at the epoch's end
  /// Call it after the end of this rank's epoch. `held`: the epoch is still running on other ranks,
  /// so the cursor stays in it.
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

/// The batches of one rank. A loader is not copyable, so share it by pointer. Only one thread may
/// read it at a time.
template <class Batch = Example>
class DataLoader : public ResumableLoader {
 public:
  /// Single pass over one epoch; a batch is valid until the next one is requested.
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

  /// Throws Error(kArgument) on options out of range, a dataset that yields no micro-batch, and
  /// samples that cannot be collated.
  DataLoader(const Dataset<Batch>& dataset, const Collate<Batch>& collate, const LoaderOptions& options)
      : loader_(dataset.source(), collate.collator(), options, [on_worker = options.on_worker](void* batch) {
          if (on_worker) loading::walk(*static_cast<Batch*>(batch), on_worker, [](auto&) {});
        }) {}
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// Starts the next epoch (the first one after construction; the cursor's position after seek). An
  /// epoch that was left early is over, except that a stream that cannot restart (a callable with a
  /// cursor, a SampleQueue) continues where it stopped. An exception from get() or from the collate
  /// function is thrown here and by the iterator, as an Error that names the sample.
  Iterator begin() {
    batch_.reset();
    loader_.begin_epoch(true);
    return Iterator(advance() ? this : nullptr);
  }
  Iterator end() { return Iterator(nullptr); }

  bool sized() const override { return loader_.sized(); }  ///< false for a stream
  /// Number of micro-batches in a full epoch, on each rank; 0 for a stream, where it is unknown.
  int64_t size() const { return loader_.size(); }
  /// Micro-batches that an epoch leaves out because of micro_batches_multiple; for a stream, those
  /// of the last epoch that ended.
  int64_t leftover_micro_batches() const { return loader_.leftover_micro_batches(); }

  std::optional<int64_t> micro_batches_left() const override { return loader_.micro_batches_left(); }

  void set_epoch(int64_t epoch) { loader_.set_epoch(epoch); }  ///< sets the epoch that the next begin() starts
  /// Counts the samples that were returned, including the current batch, but not the batches that
  /// workers have prefetched. After an epoch's end, the cursor is at the start of the next one.
  DataCursor cursor() const override { return loader_.cursor(); }
  /// The next begin() resumes at `cursor`, with the cursor's seed; if the cursor is at the end of
  /// an epoch, it starts the next one. Throws Error(kMismatch) on the cursor of another dataset.
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
  std::shared_ptr<Batch> batch_;  // the current batch
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

/// Repeats a loader (any range that can be iterated again) without end. An empty loader is
/// Error(kArgument), not an infinite loop.
template <class Loader>
class RepeatingLoader {
 public:
  explicit RepeatingLoader(std::shared_ptr<Loader> loader) : loader_(std::move(loader)) {}
  /// `loader` must outlive this object.
  explicit RepeatingLoader(Loader& loader) : loader_(&loader, [](Loader*) {}) {}

  decltype(auto) next() {
    if (at_) ++*at_;
    if (!at_ || *at_ == loader_->end()) {
      at_.reset();  // so that the next call restarts an epoch that throws while it starts
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
  /// Resumes after the last element that next() or an iterator returned: `for (auto& batch : endless) if (enough) break;`
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
