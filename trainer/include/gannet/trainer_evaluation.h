/// The part of an evaluation's data set that one rank of a Trainer reads.
#pragma once

#include <gannet/data.h>
#include <gannet/trainer_parts.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace gannet::detail {

// Every rank reads its share of the samples. A rank with fewer batches than others repeats its last
// batch, and a rank without samples repeats the data set's first batch; repeats do not count.
template <class Batch>
class EvalShare {
 public:
  using MakeLoader = std::function<std::shared_ptr<DataLoader<Batch>>(loading::Source, const LoaderOptions&)>;

  // `options` includes the rank and the number of ranks. Returns false if there are no samples.
  bool open(const loading::Source& whole, LoaderOptions options, const MakeLoader& make_loader) {
    close();
    const int64_t rank = options.rank, ranks = options.world_size;
    options.rank = 0;
    options.world_size = 1;
    loading::Source source = whole;
    is_over_ = false;
    samples_left_.reset();
    if (const auto samples = samples_of(source)) {
      if (*samples == 0) return false;
      auto first_loader = make_loader(first_samples(source, std::min(*samples, options.batch_size)), options);
      auto first = first_loader->begin();
      batch_ = std::make_shared<Batch>(std::move(*first));
      source = share_of(std::move(source), options.batch_size, rank, ranks);
      samples_left_ = *samples_of(source);
      is_over_ = *samples_left_ == 0;
      if (is_over_) source = first_samples(whole, 1);
    }
    loader_ = make_loader(std::move(source), options);
    return true;
  }
  // Reads the next batch. Returns false at the end of the share; batch() is then the last one.
  bool read() {
    if (is_over_) return false;
    if (!iterator_)
      iterator_.emplace(loader_->begin());
    else
      ++*iterator_;
    is_over_ = *iterator_ == loader_->end();
    if (!is_over_) batch_ = std::make_shared<Batch>(std::move(**iterator_));
    return !is_over_;
  }
  const std::shared_ptr<Batch>& batch() const { return batch_; }  // null: a stream without batches
  // The number of samples in a batch, for a batch type that does not provide it.
  int64_t samples_in_whole_batch() const {
    const int64_t full = loader_ ? loader_->options().batch_size : 1;
    return samples_left_ ? std::min(full, *samples_left_) : full;
  }
  void count(int64_t samples) {
    if (samples_left_) *samples_left_ -= samples;
  }
  void close() {
    iterator_.reset();
    loader_.reset();
    batch_.reset();
  }

 private:
  std::shared_ptr<DataLoader<Batch>> loader_;
  std::optional<typename DataLoader<Batch>::Iterator> iterator_;
  std::shared_ptr<Batch> batch_;
  std::optional<int64_t> samples_left_;  // null: a stream
  bool is_over_ = true;
};

}  // namespace gannet::detail
