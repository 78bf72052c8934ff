// Computes an operator of the device by running LibTorch's CPU kernel on the same bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <unordered_map>
#include <vector>

#include "accesses.h"
#include "streams.h"

namespace gannet::accelerators::checked {

// Appends the byte ranges that the tensor uses. A tensor with too many separate runs counts as one
// range from its first to its last byte.
void add_accesses(std::vector<Access>& accesses, const at::Tensor& tensor, bool writes);

std::string shape_of(const at::Tensor& tensor);  // for messages, for example "Float [8, 16]"

// Calls Checker::launch for an operator on the device's current stream. Throws c10::Error.
void launch(uint32_t device, std::string_view name, const std::vector<Access>& accesses);

// Makes CPU views of device tensors, and translates results back. The views of tensors that share a
// storage share a storage too.
class Views {
 public:
  at::Tensor of(const at::Tensor& tensor);  // returns a host tensor unchanged
  // Translates a kernel's result to the device tensor behind a view, a new view of a device
  // storage, or a copy on the device.
  at::Tensor to_device(const at::Tensor& result);
  // Copies sizes that the kernel changed and storages that it grew back to the device
  // tensors.
  void take_over_sizes();
  bool has_storage(const c10::Storage& device) const { return storages_.count(device.unsafeGetStorageImpl()) > 0; }

 private:
  struct View {
    at::Tensor device, cpu;
  };
  std::vector<View> views_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;   // the CPU storage of each device storage
  std::unordered_map<const c10::StorageImpl*, c10::Storage> device_of_;  // the device storage of each CPU storage
};

// Runs the CPU kernel of `kernel` with the arguments of `op`, records the launch on the device's
// current stream, and leaves device results on the stack. `change` turns the arguments of `op` into
// those of `kernel`.
void run_on_cpu(const c10::OperatorHandle& op, const c10::OperatorHandle& kernel, torch::jit::Stack* stack,
                void (*change)(torch::jit::Stack&) = nullptr);

// The fallback for every operator without a device kernel.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace gannet::accelerators::checked
