// Detects whether a program wrote into a tensor or replaced its memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gannet {

/// The number of in-place writes to a tensor; 0 for a tensor that was created under InferenceMode,
/// where LibTorch does not count them.
inline uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

/// The storage, for comparison by identity; null if there is none. is_alias_of() would ask for the
/// address, which a parameter without bytes does not have.
inline const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace gannet
