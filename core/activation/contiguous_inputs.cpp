#include "activation/contiguous_inputs.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <gannet/error.h>

#include <utility>
#include <vector>

#include "activation/operators.h"
#include "base/format.h"

namespace gannet::activation {

// The buffer of one argument: a tensor [slots * numel] in memory, or a region of the tier.
class ContiguousInputs::Buffer : public std::enable_shared_from_this<Buffer> {
 public:
  Buffer(int64_t slots, const at::Tensor& first, std::shared_ptr<TierMemory> tier, const std::string& name)
      : numel_(first.numel()), dtype_(first.scalar_type()), device_(first.device()) {
    if (tier)
      region_ = tier->reserve(static_cast<uint64_t>(slots), static_cast<uint64_t>(numel_) * first.itemsize(), name);
    else
      memory_ = at::empty({slots * numel_}, first.options());
    for (int64_t slot = slots; slot-- > 0;) free_.push_back(slot);
    in_use_ = 0;
  }

  // Owns a slot of the buffer and frees it on destruction.
  struct SlotLease {
    SlotLease(std::shared_ptr<Buffer> owner, int64_t place) : buffer(std::move(owner)), slot(place) {}
    ~SlotLease() {
      const std::lock_guard lock(buffer->mutex_);
      buffer->free_.push_back(slot);
      --buffer->in_use_;
    }
    SlotLease(const SlotLease&) = delete;
    const std::shared_ptr<Buffer> buffer;
    const int64_t slot;
  };
  /// Returns null if no slot is free.
  std::shared_ptr<SlotLease> lease() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return nullptr;
    const int64_t slot = free_.back();
    free_.pop_back();
    ++in_use_;
    return std::make_shared<SlotLease>(shared_from_this(), slot);
  }
  bool is_free() const {
    const std::lock_guard lock(mutex_);
    return in_use_ == 0;
  }
  bool fits(const at::Tensor& flat) const {
    return flat.numel() == numel_ && flat.scalar_type() == dtype_ && flat.device() == device_;
  }
  std::string to_string() const { return formatted("{} elements of {} on {}", numel_, c10::toString(dtype_), device_.str()); }
  uint64_t bytes() const { return region_ ? region_->bytes() : memory_.nbytes(); }

  // Returns a tensor [numel] with a new storage that owns the lease: the slot stays in use as long
  // as the storage lives.
  at::Tensor view(const std::shared_ptr<SlotLease>& lease) const {
    auto* const address =
        static_cast<char*>(memory_.data_ptr()) + lease->slot * numel_ * static_cast<int64_t>(memory_.itemsize());
    return at::from_blob(address, {numel_}, [lease](void*) {}, memory_.options());
  }
  const std::shared_ptr<TierMemory::SlotRegion>& region() const { return region_; }

 private:
  const int64_t numel_;
  const at::ScalarType dtype_;
  const at::Device device_;
  at::Tensor memory_;                               // undefined: the buffer is on the tier
  std::shared_ptr<TierMemory::SlotRegion> region_;  // null: the buffer is in memory
  mutable std::mutex mutex_;
  std::vector<int64_t> free_;  // free slots; the last one is taken next
  int64_t in_use_;
};

class ContiguousInputs::MemorySlot : public Slot {
 public:
  explicit MemorySlot(at::Tensor values) : values_(std::move(values)) {}
  void start_read() override {}
  at::Tensor read() override { return values_; }

 private:
  const at::Tensor values_;
};

class ContiguousInputs::TierSlot : public Slot {
 public:
  explicit TierSlot(std::shared_ptr<TierMemory::TierPiece> piece) : piece_(std::move(piece)) {}
  void start_read() override { piece_->start_read(); }
  at::Tensor read() override { return piece_->read(); }

 private:
  const std::shared_ptr<TierMemory::TierPiece> piece_;  // owns the lease
};

std::unique_ptr<ContiguousInputs::Slot> ContiguousInputs::put(size_t argument, const at::Tensor& flat, const std::string& name) {
  std::shared_ptr<Buffer> buffer;
  {
    const std::lock_guard lock(mutex_);
    auto& present = buffers_[argument];
    if (present && !present->fits(flat)) {
      if (!present->is_free())
        throw Error(
            ErrorCode::kUnsupported,
            formatted("contiguous_memory_optimization: argument {} of the regions so far has {}, and the {} have {} elements "
                      "of {} on {}",
                      argument + 1, present->to_string(), name, flat.numel(), c10::toString(flat.scalar_type()),
                      flat.device().str()),
            "take contiguous_memory_optimization out of the config, or make regions whose inputs have one shape");
      present.reset();
    }
    if (!present) present = std::make_shared<Buffer>(slots_, flat, tier_, formatted("argument {} of all regions", argument + 1));
    buffer = present;
  }
  auto lease = buffer->lease();
  if (!lease)
    throw Error(
        ErrorCode::kOrder,
        formatted("contiguous_memory_optimization: number_checkpoints is {}, and the {} are those of one region more that "
                  "waits for its backward",
                  slots_, name),
        "set number_checkpoints to the number of regions between two backwards; a loss that gets none must have gone");
  if (buffer->region())
    return std::make_unique<TierSlot>(tier_->write(flat, buffer->region(), static_cast<uint64_t>(lease->slot), lease));
  const at::Tensor values = buffer->view(lease);
  copy_quietly(values, flat);
  return std::make_unique<MemorySlot>(values);
}

uint64_t ContiguousInputs::bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [argument, buffer] : buffers_) bytes += buffer ? buffer->bytes() : 0;
  return bytes;
}

}  // namespace gannet::activation
