#include "grads/gradient_mark.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "base/format.h"
#include "tensor/absent_storage.h"

namespace gannet {

const at::Tensor& GradientMark::of(const at::Tensor& parameter, const std::string& name) {
  if (is(tensor_) && tensor_.scalar_type() == parameter.scalar_type()) return tensor_;
  const at::NoGradGuard no_grad;
  storage_ = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), parameter.nbytes(),
                                                   at::DataPtr(nullptr, parameter.device()), nullptr, /*resizable=*/false);
  tensor_ = at::empty({0}, at::TensorOptions().dtype(parameter.scalar_type()).device(parameter.device()));
  tensor_.set_(c10::Storage(storage_), 0, parameter.sizes(), {});
  take_bytes(
      *storage_,  // done last, because set_() asks for the address
      formatted("`.grad` of '{}' was read or written between backward() and step(), and the engine has moved that gradient "
                "into its buffers: read it with engine->full_gradient(), change it with gradient_clipping or "
                "for_each_gradient(), drop it with zero_grad() (not to zeros), and freeze the parameter "
                "(requires_grad_(false)) where another backward passes through it",
                name));
  return tensor_;
}

bool GradientMark::is(const at::Tensor& grad) const {
  // Compares identity, because is_alias_of() asks for the address.
  return storage_ && grad.defined() && grad.has_storage() && grad.storage().unsafeGetStorageImpl() == storage_.get();
}

bool is_zero_gradient(const at::Tensor& gradient) {
  return !(gradient.is_sparse() ? gradient.to_dense() : gradient).any().item<bool>();
}

}  // namespace gannet
