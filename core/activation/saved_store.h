// What operators save for backward, kept on a tier from the moment that it is saved until backward asks for it: nothing is
// computed again.
//
//   const auto store = std::make_shared<SavedStore>(tier_memory);
//   { const SavedStore::Forward here(store, is_buffer); y = model->forward(x); }
//   y.sum().backward();
//
// A storage is written once for all that operators save of it, as it is at that moment; tensors come back as views of one
// storage, with the strides that they had. On a drive, writes run in the background, and a read brings those that were saved
// before it, which backward comes to next.
//
// Not moved: what is smaller than kSmallBytes; parameters, other leaves that require gradients, and views of them; storages that
// `is_buffer` knows; memory that is not LibTorch's; tensors that are not plain memory (sparse, quantized, lazily conjugated).
// These are kept as LibTorch keeps them. Of all, versions are compared.
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
  // Below it a transfer costs more than the bytes are worth.
  static constexpr int64_t kSmallBytes = 64 << 10;
  // Tensors that are on their way to a drive at a time, and as many that are on their way back: of a transformer's block about
  // a third.
  static constexpr size_t kMostOnTheirWay = 4;

  explicit SavedStore(std::shared_ptr<Offload> tier) : tier_(std::make_shared<TierMemory>(std::move(tier), kMostOnTheirWay)) {}
  TierMemory& tier() { return *tier_; }

  class Forward;

 private:
  class Memory;  // of one stretch of a storage
  struct Saved;  // one saved tensor
  class Hooks;
  // Of one forward, in the order of saving.
  struct Order {
    std::mutex mutex;
    std::vector<std::weak_ptr<Memory>> memories;
  };
  void start_those_before(Order& order, size_t number);
  void hold(const std::shared_ptr<Memory>& memory);

  const std::shared_ptr<TierMemory> tier_;
  std::mutex mutex_;
  std::deque<std::weak_ptr<Memory>> coming_;  // reads that have begun
  std::deque<std::weak_ptr<Memory>> held_;    // that were read, and that more than one operator saved
};

// While it lives, on its thread. Ends there.
class SavedStore::Forward : private Keeper {
 public:
  /// Throws Error(kUnsupported) where the process has another autograd engine.
  Forward(std::shared_ptr<SavedStore> store, std::function<bool(const c10::StorageImpl*)> is_buffer);
  Forward(const Forward&) = delete;

 private:
  friend class SavedStore::Hooks;
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;
  bool drops_all() const override { return false; }
  bool keeps_elsewhere() const override { return true; }
  void pack(Saved& saved, const at::Tensor& tensor);
  bool is_moved(const at::Tensor& tensor) const;
  std::shared_ptr<Memory> memory_of(const at::Tensor& tensor);

  const std::shared_ptr<SavedStore> store_;
  const std::function<bool(const c10::StorageImpl*)> is_buffer_;
  const std::shared_ptr<Order> order_ = std::make_shared<Order>();
  // A weak reference keeps a storage's address from being used again.
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::vector<std::pair<Version, std::weak_ptr<Memory>>> memories;  // stretches of it, as they were at some moment
  };
  ska::flat_hash_map<const c10::StorageImpl*, Known> known_;
  const Keeping keeping_;
};

}  // namespace gannet::activation
