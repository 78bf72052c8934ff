// Scratch memory for an optimizer while it updates a piece (gannet_update_args::workspace): one
// buffer for all pieces and groups, as large as the largest request.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cstdint>

#include "plugin/plugin.h"

namespace gannet {

class Workspace {
 public:
  // Returns at least `bytes` on the device, aligned to 64 bytes, with unspecified contents; null
  // for 0 bytes. Invalidates the memory that an earlier call returned. `asks`: the optimizer's
  // plugin, which the error for a failed allocation names.
  void* of(uint64_t bytes, at::Device device, const plugin::Plugin& asks) {
    if (bytes == 0) return nullptr;
    const auto numel = static_cast<int64_t>((bytes + 63) / 64 * 64);
    if (!memory_.defined() || memory_.numel() < numel || memory_.device() != device) {
      memory_ = at::Tensor();  // free it before the larger one is allocated
      try {
        memory_ = at::empty({numel}, at::TensorOptions().dtype(at::kByte).device(device));
      } catch (const c10::Error&) {
        refuse(bytes, device, asks);
      }
    }
    return memory_.data_ptr();
  }

 private:
  [[noreturn]] static void refuse(uint64_t bytes, at::Device device, const plugin::Plugin& asks);
  at::Tensor memory_;  // [bytes]; LibTorch's allocators align it to 64 bytes
};

}  // namespace gannet
