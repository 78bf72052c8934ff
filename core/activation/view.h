// Tensors as memory: which elements of a storage one is, and one made of such a description, without a graph and without an
// operator that anybody sees.
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

// Which elements of a storage a tensor is.
struct View {
  c10::DimVector sizes, strides;
  int64_t offset = 0;  // in elements
  at::ScalarType dtype = at::kFloat;
  explicit View(const at::Tensor& tensor);
  /// `count` bytes from byte `begin` on.
  static View of_bytes(int64_t begin, int64_t count);
  bool operator==(const View&) const = default;

 private:
  View() = default;
};

/// Elements from a tensor's first one to its last one, gaps included. The tensor has elements.
int64_t span_of(const at::Tensor& tensor);
/// A tensor whose elements a storage and strides are: not quantized, not lazily conjugated or negated, not of inference mode.
bool is_plain(const at::Tensor& tensor);
/// A leaf that requires a gradient, or a view of one: a parameter, whose owner keeps it.
bool is_of_leaf(const at::Tensor& tensor);
/// One over a storage, without a graph and with a version of its own. `keys`: of a tensor that it has been.
at::Tensor tensor_over(const c10::Storage& storage, c10::DispatchKeySet keys, const View& view);
/// The same tensor without a graph, as a saved-tensor hook may keep it. No operator runs.
at::Tensor without_graph(const at::Tensor& tensor);

/// Error(kOrder): the tensor that was saved for backward at `version` has another version by now.
[[noreturn]] void throw_changed(const View& saved, const Version& version);

}  // namespace gannet::activation
