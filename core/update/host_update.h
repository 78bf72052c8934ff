// An update on the CPU for parameters and gradients in separate device memory, while masters and
// states are in host memory. Gradients are copied to the host piece by piece and new parameters are
// copied back, overlapped with the update of another piece.
//
//   HostUpdate host(accelerator, options);
//   host.fetch(0, grad, param, stream);
//   for (size_t i = 0; i < pieces; ++i) {
//     if (i + 1 < pieces) host.fetch(i + 1, ...);
//     host.wait(i);
//     update(host.grad(i), host.param(i), ...);      // on the host
//     host.give_back(i);
//   }
//   host.finish();
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <optional>

#include "device/queue.h"

namespace gannet {

class HostUpdate {
 public:
  // `reads_param`: the device's parameters are the masters; otherwise they are only written. Pieces
  // have at most `numel` elements.
  struct Options {
    int64_t numel = 0;
    std::optional<at::ScalarType> grad_dtype = {};  // none: gradients are already in host memory
    at::ScalarType param_dtype = at::kFloat;
    bool reads_param = false;
    uint32_t device = 0;  // index among the accelerator's devices
  };
  HostUpdate(Accelerator& accelerator, Options options);
  ~HostUpdate();
  HostUpdate(const HostUpdate&) = delete;

  // Starts to copy piece `index`; indices increase from 0. `grad` and `param` were produced on
  // `stream`. If `param` is undefined, parameters are not copied to the device. If `grad` is
  // undefined, it is already on the host.
  void fetch(size_t index, const at::Tensor& grad, const at::Tensor& param, void* stream);
  void wait(size_t index);  // waits until the piece has arrived
  void* grad(size_t index) { return slot(index).grad.data_ptr(); }
  void* param(size_t index) { return slot(index).param.data_ptr(); }
  void give_back(size_t index);
  void finish();  // waits until everything is on the device

 private:
  struct StagingSlot {
    at::Tensor grad, param, device_param;
    Pin grad_pin, param_pin;
    Event came, gone;
  };
  StagingSlot& slot(size_t index) { return slots_[index % slots_.size()]; }
  Options options_;
  Queue to_host_, to_device_;
  std::array<StagingSlot, 2> slots_;
};

}  // namespace gannet
