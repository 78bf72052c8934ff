#include "tensor/move_leaf.h"

#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/ops/_has_compatible_shallow_copy_type.h>

namespace gannet {

void move_leaf(const at::Tensor& leaf, const at::Tensor& values) {
  // set_data accepts only tensors with the same kind of TensorImpl, which it recognizes by the
  // dispatch keys. The keys are therefore changed first.
  if (leaf.device().type() != values.device().type() && !at::_has_compatible_shallow_copy_type(leaf, values))
    leaf.unsafeGetTensorImpl()->_change_backend_component_keys(values.device());
  leaf.set_data(values);
  // set_data takes over the device of a compressed sparse tensor, but not its members (LibTorch 2.11).
  if (at::sparse_csr::is_sparse_compressed(values)) {
    const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(values);
    at::sparse_csr::get_sparse_csr_impl(leaf)->set_member_tensors(compressed, plain, values.values(), values.sizes());
  }
}

}  // namespace gannet
