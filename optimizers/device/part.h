// Parts of a range, for optimizers that work tensor by tensor: where a tensor's part is, and the
// blocks in which it is summed.
#pragma once

#include <gannet/abi.h>

#include <cstddef>
#include <gannet/sdk_rule.hpp>
#include <gannet/sdk_sums.hpp>

#include "optimizers/device/team.h"

namespace gannet::rules {

using sdk::TensorBlocks;

// The size of an element, for the types of elementwise_supports().
inline uint64_t element_bytes(uint32_t dtype) { return dtype == GANNET_FLOAT64 ? 8 : dtype == GANNET_FLOAT32 ? 4 : 2; }

// The elements [first, first + numel) of a range, as a separate range. Its kStates states are the
// first ones in the list of states; they are per element and have the master's type.
template <size_t kStates>
struct UpdatePart {
  UpdatePart(const gannet_update_args& all, uint64_t first, uint64_t numel) : args(all) {
    const uint64_t bytes = element_bytes(all.param_dtype);
    args.numel = numel;
    args.param = static_cast<char*>(all.param) + first * bytes;
    args.grad = static_cast<const char*>(all.grad) + first * element_bytes(all.grad_dtype);
    if (all.out != nullptr) args.out = static_cast<char*>(all.out) + first * element_bytes(all.out_dtype);
    for (size_t s = 0; s < kStates; ++s) states[s] = static_cast<char*>(all.states[s]) + first * bytes;
    args.states = states;
    args.state_count = kStates;
  }
  UpdatePart(const UpdatePart&) = delete;

  gannet_update_args args;
  void* states[kStates > 0 ? kStates : 1];
};

// Calls body(T(), grad) with the types of the master and of its gradients.
template <class Device, class Body>
void with_numbers(const gannet_update_args& args, Body&& body) {
  if (args.param_dtype == GANNET_FLOAT64) return body(double(), static_cast<const double*>(args.grad));
  if (args.grad_dtype == GANNET_BFLOAT16) return body(float(), static_cast<const typename Device::BFloat16*>(args.grad));
  if (args.grad_dtype == GANNET_FLOAT16) return body(float(), static_cast<const typename Device::Half*>(args.grad));
  body(float(), static_cast<const float*>(args.grad));
}

// Calls body(grad, out) with the gradients and the low-precision copy of an fp32 master.
template <class Device, class Body>
void with_gradient_and_copy(const gannet_update_args& args, Body&& body) {
  const auto with_copy = [&](const auto* grad) {
    if (args.out_dtype == GANNET_BFLOAT16) return body(grad, static_cast<typename Device::BFloat16*>(args.out));
    if (args.out_dtype == GANNET_FLOAT16) return body(grad, static_cast<typename Device::Half*>(args.out));
    body(grad, static_cast<device::NoCopy*>(nullptr));
  };
  if (args.grad_dtype == GANNET_BFLOAT16) return with_copy(static_cast<const typename Device::BFloat16*>(args.grad));
  if (args.grad_dtype == GANNET_FLOAT16) return with_copy(static_cast<const typename Device::Half*>(args.grad));
  with_copy(static_cast<const float*>(args.grad));
}

}  // namespace gannet::rules
