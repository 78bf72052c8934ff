#include "activation/input_store.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "activation/unseen.h"
#include "params/interception.h"

namespace gannet::activation {
class InputStore::Memory {
 public:
  // `flat` has the elements of the byte range. If options.ranks is set, all those ranks have the
  // same values. `contiguous` may be null.
  Memory(const Options& options, ContiguousInputs* contiguous, const at::Tensor& flat, size_t argument, const std::string& name)
      : ranks_(options.ranks), numel_(flat.numel()) {
    at::Tensor mine = flat;
    if (ranks_) {
      const auto size = static_cast<int64_t>(ranks_->size()), rank = static_cast<int64_t>(ranks_->rank());
      const int64_t part = (numel_ + size - 1) / size, begin = std::min(part * rank, numel_),
                    end = std::min(begin + part, numel_);
      mine = at::zeros({part}, flat.options());  // padded: the slices of the last ranks may be shorter
      mine.narrow(0, 0, end - begin).copy_(flat.narrow(0, begin, end - begin));
    }
    bytes_ = static_cast<uint64_t>(mine.numel()) * mine.itemsize();
    if (contiguous)
      slot_ = contiguous->put(argument, mine, name);
    else if (options.tier)
      piece_ = options.tier->write(mine, name);
    else
      slice_ = mine;
  }

  void start_coming() {
    const std::lock_guard lock(mutex_);
    if (piece_) piece_->start_read();
    if (slot_) slot_->start_read();
  }

  uint64_t bytes_here() const { return bytes_; }

  at::Tensor flat() {
    const std::lock_guard lock(mutex_);
    const at::Tensor mine = slot_ ? slot_->read() : piece_ ? piece_->read() : slice_;
    if (!ranks_) return mine;
    const at::Tensor whole = at::empty({mine.numel() * static_cast<int64_t>(ranks_->size())}, mine.options());
    ranks_->all_gather(mine, whole).block();
    return whole.narrow(0, 0, numel_);
  }

 private:
  const std::shared_ptr<DeviceComm> ranks_;
  const int64_t numel_;
  std::mutex mutex_;
  std::unique_ptr<ContiguousInputs::Slot> slot_;
  std::shared_ptr<TierMemory::TierPiece> piece_;
  at::Tensor slice_;
  uint64_t bytes_ = 0;
};

bool InputStore::is_movable(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.has_storage() || tensor.layout() != at::kStrided || tensor.numel() == 0 ||
      tensor.is_inference() || tensor.is_conj() || tensor.is_neg() || tensor.is_meta())
    return false;
  if (options_.ranks && (!tensor.is_floating_point() || tensor.numel() < static_cast<int64_t>(options_.ranks->size())))
    return false;
  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  return storage->allocator() != nullptr && !is_of_leaf(tensor) && !zero::is_watched(storage) &&
         !(options_.is_parameter && options_.is_parameter(storage));
}

std::shared_ptr<InputStore::Memory> InputStore::memory_of(const at::Tensor& tensor, size_t argument, const std::string& name) {
  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const int64_t span = span_of(tensor), item = static_cast<int64_t>(tensor.itemsize());
  const StorageRange stretch{storage, tensor.storage_offset() * item, span * item};
  const Version version = Version::of(tensor);
  std::erase_if(known_, [](const auto& one) { return one.second.storage.expired() || one.second.memory.expired(); });
  if (const auto found = known_.find(stretch); found != known_.end() && found->second.version == version)
    if (auto memory = found->second.memory.lock()) return memory;
  const auto memory = std::make_shared<Memory>(options_, contiguous_.get(),
                                               tensor.detach().as_strided({span}, {1}, tensor.storage_offset()), argument, name);
  known_.insert_or_assign(stretch, KnownInput{weak_storage(tensor), version, memory});
  return memory;
}

std::shared_ptr<InputStore::KeptInputs> InputStore::keep(const std::vector<at::Tensor>& inputs, const std::string& name) {
  const UnobservedScope unseen;
  const std::lock_guard lock(mutex_);
  auto kept = std::make_shared<KeptInputs>();
  for (const at::Tensor& input : inputs) {
    const bool is_moved = is_movable(input);
    kept->memories_.push_back(is_moved ? memory_of(input, kept->memories_.size(), name) : nullptr);
    kept->shapes_.push_back(
        is_moved ? at::empty_strided(input.sizes(), input.strides(), at::TensorOptions().dtype(input.dtype()).device(at::kMeta))
                 : at::Tensor());
  }
  kept->before_ = std::exchange(last_, kept);
  return kept;
}

at::Tensor InputStore::KeptInputs::values(size_t input) {
  const UnobservedScope unseen;
  const at::Tensor& shape = shapes_[input];
  const at::Tensor flat = memories_[input]->flat();
  return flat.as_strided(shape.sizes(), shape.strides(), flat.storage_offset()).detach();
}

uint64_t InputStore::KeptInputs::bytes_here() const {
  uint64_t bytes = 0;
  for (const auto& memory : memories_) bytes += memory ? memory->bytes_here() : 0;
  return bytes;
}

void InputStore::KeptInputs::start_those_before() const {
  if (const auto before = before_.lock()) before->start_coming();
}

void InputStore::KeptInputs::start_coming() {
  const UnobservedScope unseen;
  for (const auto& memory : memories_)
    if (memory) memory->start_coming();
}

}  // namespace gannet::activation
