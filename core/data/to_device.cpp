#include <gannet/to_device.h>

namespace gannet {

at::Tensor to_device(const at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || tensor.device() == device) return tensor;
  if (tensor.device().type() == device.type() && !device.has_index()) return tensor;  // "cuda" means any device of that type
  // is_pinned() makes LibTorch look for an accelerator, so it is called only when the tensor must
  // be copied to a different device.
  const bool non_blocking = tensor.device().is_cpu() && tensor.is_pinned();
  return tensor.to(device, non_blocking);
}

}  // namespace gannet
