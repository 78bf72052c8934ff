// Memory that an optimizer works in while it has a piece (gannet_update_args::workspace): one buffer for all pieces and groups,
// as large as the largest that was asked for.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cstdint>

#include "plugin/plugin.h"

namespace gannet {

class Workspace {
 public:
  // At least `bytes` on the device, aligned to 64 bytes, with any contents; null for none. Ends what an earlier call returned.
  // `asks`: the optimizer's plugin. Error names it where there is no such memory.
  void* of(uint64_t bytes, at::Device device, const plugin::Plugin& asks) {
    if (bytes == 0) return nullptr;
    const auto numel = static_cast<int64_t>((bytes + 63) / 64 * 64);
    if (!memory_.defined() || memory_.numel() < numel || memory_.device() != device) {
      memory_ = at::Tensor();  // before the larger one is there
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
  at::Tensor memory_;  // [bytes], LibTorch's allocators align it to 64 bytes
};

}  // namespace gannet
