// What tells whether a program wrote into a tensor, or gave it other memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gannet {

/// How often it was written in place; 0 for one that was made under InferenceMode: LibTorch does not count there.
inline uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

/// By identity: is_alias_of() asks for the address, which a parameter that is away does not have.
inline const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace gannet
