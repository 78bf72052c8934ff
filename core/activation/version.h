// The version of a tensor at some point, without the tensor itself. A saved-tensor hook disables
// LibTorch's own version check, so the code that keeps a saved tensor must compare versions itself.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <cstring>

namespace gannet::activation {

struct Version {
  c10::VariableVersion counter = c10::VariableVersion(c10::VariableVersion::DISABLED);
  uint32_t number = 0;

  static Version of(const at::Tensor& tensor) {
    if (tensor.is_inference()) return {};
    const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
    return {counter, counter.enabled() ? counter.current_version() : 0};
  }
  /// Compares both counter and number: tensors over one storage may have separate counters
  /// (unsafe_chunk, .data()), and a write through one of them changes only its own counter.
  bool operator==(const Version& other) const {
    static_assert(sizeof(counter) == sizeof(void*), "a VariableVersion is one pointer to its counter");
    return number == other.number && std::memcmp(&counter, &other.counter, sizeof(counter)) == 0;
  }
  bool has_passed() const { return counter.enabled() && counter.current_version() != number; }
};

}  // namespace gannet::activation
