/// The micro-batches of one update of a Trainer, on one rank.
#pragma once

#include <gannet/data.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace gannet::detail {

// A rank that runs out of batches before the others repeats its last one, which does not count.
template <class Batch>
class TrainBatches {
 public:
  // The same loader for every train(): checkpoints record the position in it.
  const std::shared_ptr<DataLoader<Batch>>& loader() const { return loader_; }
  void set_loader(std::shared_ptr<DataLoader<Batch>> loader) { loader_ = std::move(loader); }
  void begin_training() {
    iterator_.reset();
    batches_.clear();
  }
  void begin_epoch(std::optional<int64_t> epoch) {
    iterator_.reset();
    if (epoch) loader_->set_epoch(*epoch);
    iterator_.emplace(loader_->begin());
    is_first_of_epoch_ = true;
  }
  // Reads the batches of the next update, at most `count`; returns `items_of` for each.
  template <class ItemsOf>
  std::vector<double> read(int64_t count, const ItemsOf& items_of) {
    if (batches_.size() > 1) {
      std::vector<Batch> last;
      last.push_back(std::move(batches_.back()));
      batches_ = std::move(last);
    }
    std::vector<double> items;
    for (int64_t i = 0; i < count; ++i) {
      if (!std::exchange(is_first_of_epoch_, false) && *iterator_ != loader_->end()) ++*iterator_;
      if (*iterator_ == loader_->end()) break;
      if (i == 0) batches_.clear();
      batches_.push_back(std::move(**iterator_));
      items.push_back(items_of(batches_.back()));
    }
    counted_ = items.size();
    return items;
  }
  bool empty() const { return batches_.empty(); }
  size_t counted() const { return counted_; }  // number read for this update
  Batch& at(size_t index) { return index < counted_ ? batches_[index] : batches_.back(); }
  const Batch& at(size_t index) const { return index < counted_ ? batches_[index] : batches_.back(); }
  void close() {
    iterator_.reset();
    loader_.reset();
  }

 private:
  std::shared_ptr<DataLoader<Batch>> loader_;
  std::optional<typename DataLoader<Batch>::Iterator> iterator_;
  bool is_first_of_epoch_ = false;
  std::vector<Batch> batches_;  // those of the current update; if this rank got none, its last batch
  size_t counted_ = 0;
};

}  // namespace gannet::detail
