// How often a tensor was written in place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gannet {

/// 0 for one that was made under InferenceMode: LibTorch does not count there.
inline uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

}  // namespace gannet
