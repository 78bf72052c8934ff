// The inputs of all regions side by side, in one buffer for each argument ("contiguous_memory_optimization"): allocated when the
// first region keeps its own, with as many slots as the config has checkpoints.
//
//   ContiguousInputs buffers(12, tier);              // null: the device's memory
//   const auto slot = buffers.put(0, flat, "inputs of the region 'block'");
//   slot->start_read();
//   at::Tensor values = slot->read();                // the slot is free when neither it nor such a tensor is left
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "activation/tier_memory.h"

namespace gannet::activation {

class ContiguousInputs {
 public:
  ContiguousInputs(int64_t slots, std::shared_ptr<TierMemory> tier) : slots_(slots), tier_(std::move(tier)) {}

  // What one region keeps of one argument.
  class Slot {
   public:
    virtual ~Slot() = default;
    virtual void start_read() = 0;
    virtual at::Tensor read() = 0;  // [numel]
  };
  /// Copies `flat` [numel] into a free slot of the argument's buffer. Throws Error(kUnsupported) where it has not the numel,
  /// dtype and device of the others, and Error(kOrder) where no slot is free. A buffer without a slot in use is replaced
  /// where inputs have another shape.
  std::unique_ptr<Slot> put(size_t argument, const at::Tensor& flat, const std::string& name);
  /// Of all buffers.
  uint64_t bytes() const;

 private:
  class Buffer;
  class InMemory;
  class OnTier;
  const int64_t slots_;
  const std::shared_ptr<TierMemory> tier_;
  mutable std::mutex mutex_;
  std::map<size_t, std::shared_ptr<Buffer>> buffers_;  // by argument
};

}  // namespace gannet::activation
