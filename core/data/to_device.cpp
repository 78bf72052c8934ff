#include <gannet/to_device.h>

namespace gannet {

at::Tensor to_device(const at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || tensor.device() == device) return tensor;
  if (tensor.device().type() == device.type() && !device.has_index()) return tensor;  // "cuda": whichever it is on
  // Asking whether memory is pinned makes LibTorch look for an accelerator: only when there is one to go to.
  const bool non_blocking = tensor.device().is_cpu() && tensor.is_pinned();
  return tensor.to(device, non_blocking);
}

}  // namespace gannet
