// An operator of the device, computed by LibTorch's CPU kernel on the same bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <unordered_map>
#include <vector>

#include "accesses.h"
#include "streams.h"

namespace gannet::accelerators::checked {

// Appends the bytes that the tensor uses. One of many separate runs of elements counts as one run from the first to the last.
void add_accesses(std::vector<Access>& accesses, const at::Tensor& tensor, bool writes);

std::string shape_of(const at::Tensor& tensor);  // "Float [8, 16]", for messages

// Checker::launch of an operator on the current stream of the device. Throws c10::Error.
void launch(uint32_t device, std::string_view name, const std::vector<Access>& accesses);

// Views on the CPU of tensors of the device, and the way back. Storages that several tensors share are shared by the views.
class Views {
 public:
  at::Tensor of(const at::Tensor& tensor);  // a tensor of the host is itself
  // What a kernel made of the views: the tensor of the device behind one of them, a new view of the device's bytes, or a copy.
  at::Tensor to_device(const at::Tensor& result);
  // Takes over sizes, and memory that the kernel has exchanged for more.
  void take_over_sizes();
  bool has_storage(const c10::Storage& device) const { return storages_.count(device.unsafeGetStorageImpl()) > 0; }

 private:
  struct View {
    at::Tensor device, cpu;
  };
  std::vector<View> views_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;   // the CPU's, by the device's
  std::unordered_map<const c10::StorageImpl*, c10::Storage> device_of_;  // the device's, by the CPU's
};

// Calls the CPU kernel of `kernel` with the arguments of `op`, notes the launch on the device's current stream, and leaves the
// device's results on the stack. `change`: turns the arguments of `op` into those of `kernel`.
void run_on_cpu(const c10::OperatorHandle& op, const c10::OperatorHandle& kernel, torch::jit::Stack* stack,
                void (*change)(torch::jit::Stack&) = nullptr);

// The fallback of every operator that the device has no kernel of its own for.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace gannet::accelerators::checked
