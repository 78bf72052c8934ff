// Keeps the tensors that operators save for backward on a tier until backward reads them. Nothing
// is recomputed.
//
//   const auto store = std::make_shared<SavedStore>(tier_memory);
//   { const SavedStore::Forward here(store, is_buffer); y = model->forward(x); }
//   y.sum().backward();
//
// A storage is written once, in its current state, for all tensors that operators save from it; the
// tensors are restored as views of one storage, with their original strides. On a drive, writes run
// in the background. A read also starts reading the tensors that were saved just before, which
// backward needs next.
//
// These are not moved: tensors smaller than kSmallBytes; parameters, other leaves that require
// gradients, and views of them; storages for which `is_buffer` is true; memory that LibTorch did
// not allocate; tensors that are not plain memory (sparse, quantized, lazily conjugated). They are
// kept as LibTorch keeps them. Versions are checked for all tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/flat_hash_map.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "activation/saved_tensors.h"
#include "activation/tier_memory.h"
#include "activation/version.h"

namespace gannet::activation {

class SavedStore : public std::enable_shared_from_this<SavedStore> {
 public:
  // Below this size, a transfer costs more than the memory is worth.
  static constexpr int64_t kSmallBytes = 64 << 10;
  // The maximum number of tensors in flight to a drive, and of those that a read requests in
  // advance: about a third of the tensors that a transformer block saves.
  static constexpr size_t kMostOnTheirWay = 4;

  explicit SavedStore(std::shared_ptr<Offload> tier) : tier_(std::make_shared<TierMemory>(std::move(tier), kMostOnTheirWay)) {}
  TierMemory& tier() { return *tier_; }

  class Forward;

 private:
  class Memory;        // one byte range of a storage
  struct SavedTensor;  // one saved tensor
  class Hooks;
  // The memories of one forward, in the order of saving.
  struct SavingOrder {
    std::mutex mutex;
    std::vector<std::weak_ptr<Memory>> memories;
  };
  void start_those_before(SavingOrder& order, size_t number);
  void hold(const std::shared_ptr<Memory>& memory);

  const std::shared_ptr<TierMemory> tier_;
  std::mutex mutex_;
  std::deque<std::weak_ptr<Memory>> coming_;  // reads in flight
  std::deque<std::weak_ptr<Memory>> held_;    // already read, and held because several saved tensors share the memory
};

// While an object of this class lives, the store keeps the tensors saved on its thread. It must be
// destroyed on the same thread.
class SavedStore::Forward : private Keeper {
 public:
  /// Throws Error(kUnsupported) if the process has an autograd engine other than LibTorch's.
  Forward(std::shared_ptr<SavedStore> store, std::function<bool(const c10::StorageImpl*)> is_buffer);
  Forward(const Forward&) = delete;

 private:
  friend class SavedStore::Hooks;
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;
  bool drops_all() const override { return false; }
  bool keeps_elsewhere() const override { return true; }
  void pack(SavedTensor& saved, const at::Tensor& tensor);
  bool is_moved(const at::Tensor& tensor) const;
  std::shared_ptr<Memory> memory_of(const at::Tensor& tensor);

  const std::shared_ptr<SavedStore> store_;
  const std::function<bool(const c10::StorageImpl*)> is_buffer_;
  const std::shared_ptr<SavingOrder> order_ = std::make_shared<SavingOrder>();
  // The weak reference keeps the storage's address from being reused.
  struct KnownStorage {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::vector<std::pair<Version, std::weak_ptr<Memory>>> memories;  // byte ranges, each with the version that was saved
  };
  ska::flat_hash_map<const c10::StorageImpl*, KnownStorage> known_;
  const KeeperScope keeping_;
};

}  // namespace gannet::activation
