// Describes which elements of a storage a tensor covers. Also creates tensors from such a
// description, without a graph and without running an operator that observers see.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/DimVector.h>

#include <cstdint>

#include "activation/version.h"

namespace gannet::activation {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
WeakStorage weak_storage(const at::Tensor& tensor);
inline const c10::StorageImpl* storage_impl(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// The elements of a storage that a tensor covers.
struct View {
  c10::DimVector sizes, strides;
  int64_t offset = 0;  // in elements
  at::ScalarType dtype = at::kFloat;
  explicit View(const at::Tensor& tensor);
  /// A view of `count` bytes, starting at byte `begin`.
  static View of_bytes(int64_t begin, int64_t count);
  bool operator==(const View&) const = default;

 private:
  View() = default;
};

/// Number of elements from a tensor's first element to its last, gaps included. The tensor must not
/// be empty.
int64_t span_of(const at::Tensor& tensor);
/// Whether storage and strides fully describe the tensor: it is not quantized, lazily conjugated,
/// lazily negated, or an inference tensor.
bool is_plain(const at::Tensor& tensor);
/// Whether the tensor is a leaf that requires a gradient, or a view of such a leaf. These are
/// parameters, which their owner keeps.
bool is_of_leaf(const at::Tensor& tensor);
/// Creates a tensor over a storage, without a graph and with its own version counter. `keys` are
/// those of the original tensor.
at::Tensor tensor_over(const c10::Storage& storage, c10::DispatchKeySet keys, const View& view);
/// The same tensor without a graph, in a form that a saved-tensor hook may keep. No operator runs.
at::Tensor without_graph(const at::Tensor& tensor);

/// Throws Error(kOrder): the tensor that was saved for backward at `version` has changed since.
[[noreturn]] void throw_changed(const View& saved, const Version& version);

}  // namespace gannet::activation
