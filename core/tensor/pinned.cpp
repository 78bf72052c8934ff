#include "tensor/pinned.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gannet/log.h>

#include <atomic>

#include "base/format.h"

namespace gannet {

at::Tensor pinned_empty(at::IntArrayRef shape, at::ScalarType dtype, at::Device device) {
  const at::TensorOptions plain = at::TensorOptions().dtype(dtype).device(at::kCPU);
  if (device.is_cpu()) return at::empty(shape, plain);
  try {
    return at::empty(shape, plain.pinned_memory(true));
  } catch (const c10::Error& error) {
    static std::atomic<bool> is_said{false};
    if (!is_said.exchange(true))
      log_warning(formatted("host memory could not be page-locked, so that copies from and to {} make the host wait: {}",
                            device.str(), error.what_without_backtrace()));
    return at::empty(shape, plain);
  }
}

}  // namespace gannet
