#include "update/host_update.h"

#include <gannet/log.h>

#include "tensor/flat_buffer.h"

namespace gannet {

HostUpdate::HostUpdate(Accelerator& accelerator, Options options)
    : options_(options),
      to_host_(accelerator.make_queue("to host", options.device)),
      to_device_(accelerator.make_queue("to device", options.device)) {
  for (StagingSlot& one : slots_) {
    one.param = allocate_flat(options_.numel, options_.param_dtype, at::kCPU);
    one.param_pin = accelerator.pin(one.param.data_ptr(), one.param.nbytes());
    if (!options_.grad_dtype) continue;
    one.grad = allocate_flat(options_.numel, *options_.grad_dtype, at::kCPU);
    one.grad_pin = accelerator.pin(one.grad.data_ptr(), one.grad.nbytes());
  }
}

HostUpdate::~HostUpdate() {
  try {
    finish();
  } catch (const std::exception& error) {  // an update failed; the buffers are no longer in use
    log(LogLevel::kError, error.what());
  }
}

void HostUpdate::fetch(size_t index, const at::Tensor& grad, const at::Tensor& param, void* stream) {
  StagingSlot& one = slot(index);
  one.gone.wait();  // wait until the previous piece in this slot has left it
  one.device_param = param;
  to_host_.wait_stream(stream);
  if (grad.defined()) to_host_.copy(one.grad.data_ptr(), grad.const_data_ptr(), grad.nbytes());
  if (options_.reads_param && param.defined()) to_host_.copy(one.param.data_ptr(), param.const_data_ptr(), param.nbytes());
  one.came = to_host_.record();
}

void HostUpdate::wait(size_t index) { slot(index).came.wait(); }

void HostUpdate::give_back(size_t index) {
  StagingSlot& one = slot(index);
  if (!one.device_param.defined()) return;
  to_device_.copy(one.device_param.data_ptr(), one.param.const_data_ptr(), one.device_param.nbytes());
  one.gone = to_device_.record();
}

void HostUpdate::finish() {
  for (StagingSlot& one : slots_) {
    one.came.wait();
    one.gone.wait();
  }
}

}  // namespace gannet
