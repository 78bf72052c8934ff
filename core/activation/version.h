// A tensor's version at some moment, without the tensor. A hook of saved tensors switches LibTorch's own check off, so that who
// keeps one compares its version.
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
  /// The same number of the same counter: tensors over one storage may have counters of their own (unsafe_chunk, .data()), and
  /// what is written through one of them is seen by its counter alone.
  bool operator==(const Version& other) const {
    static_assert(sizeof(counter) == sizeof(void*), "a VariableVersion is one pointer to its counter");
    return number == other.number && std::memcmp(&counter, &other.counter, sizeof(counter)) == 0;
  }
  bool has_passed() const { return counter.enabled() && counter.current_version() != number; }
};

}  // namespace gannet::activation
