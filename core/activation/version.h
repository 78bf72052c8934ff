// A tensor's version at some moment, without the tensor. A hook of saved tensors switches LibTorch's own check off, so that who
// keeps one compares its version.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>

namespace gannet::activation {

struct Version {
  c10::VariableVersion counter = c10::VariableVersion(c10::VariableVersion::DISABLED);
  uint32_t number = 0;

  static Version of(const at::Tensor& tensor) {
    if (tensor.is_inference()) return {};
    const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
    return {counter, counter.enabled() ? counter.current_version() : 0};
  }
  bool has_passed() const { return counter.enabled() && counter.current_version() != number; }
};

}  // namespace gannet::activation
