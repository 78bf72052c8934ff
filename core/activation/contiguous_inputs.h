// Keeps the inputs of all regions contiguous, in one buffer per argument
// ("contiguous_memory_optimization"). A buffer is allocated when the first region keeps its inputs,
// with number_checkpoints slots.
//
//   ContiguousInputs buffers(12, tier);              // with a null tier: in the device's memory
//   const auto slot = buffers.put(0, flat, "inputs of the region 'block'");
//   slot->start_read();
//   at::Tensor values = slot->read();                // the slot is freed when both are destroyed
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

  // One region's copy of one argument.
  class Slot {
   public:
    virtual ~Slot() = default;
    virtual void start_read() = 0;
    virtual at::Tensor read() = 0;  // [numel]
  };
  /// Copies `flat` [numel] into a free slot of the argument's buffer. Throws Error(kUnsupported) if
  /// its numel, dtype or device differs from that of the tensors in the buffer, and Error(kOrder)
  /// if no slot is free. A buffer with no slot in use is replaced when an input arrives that does
  /// not fit it.
  std::unique_ptr<Slot> put(size_t argument, const at::Tensor& flat, const std::string& name);
  /// Total size of all buffers.
  uint64_t bytes() const;

 private:
  class Buffer;
  class MemorySlot;
  class TierSlot;
  const int64_t slots_;
  const std::shared_ptr<TierMemory> tier_;
  mutable std::mutex mutex_;
  std::map<size_t, std::shared_ptr<Buffer>> buffers_;  // by argument
};

}  // namespace gannet::activation
