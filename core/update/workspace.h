// Memory that an optimizer works in while it has a piece (gannet_update_args::workspace): one buffer for all pieces and groups,
// as large as the largest that was asked for.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>

namespace gannet {

class Workspace {
 public:
  // At least `bytes` on the device, aligned to 64 bytes, with any contents; null for none. Ends what an earlier call returned.
  void* of(uint64_t bytes, at::Device device) {
    if (bytes == 0) return nullptr;
    const auto numel = static_cast<int64_t>((bytes + 63) / 64 * 64);
    if (!memory_.defined() || memory_.numel() < numel || memory_.device() != device) {
      memory_ = at::Tensor();  // before the larger one is there
      memory_ = at::empty({numel}, at::TensorOptions().dtype(at::kByte).device(device));
    }
    return memory_.data_ptr();
  }

 private:
  at::Tensor memory_;  // [bytes], LibTorch's allocators align it to 64 bytes
};

}  // namespace gannet
