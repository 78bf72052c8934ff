// Tensor views of the arrays in a piece's arguments, for the engine's own operations on them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <gannet/abi.h>

#include <cstddef>
#include <cstdint>

#include "interfaces/optimizer.h"
#include "tensor/dtype.h"

namespace gannet {

// Returns a tensor view of one of a piece's arrays.
inline at::Tensor view_of(const gannet_update_args& args, void* data, uint32_t dtype, at::Device device) {
  return at::from_blob(data, {static_cast<int64_t>(args.numel)},
                       at::TensorOptions().dtype(to_scalar_type(static_cast<gannet_dtype>(dtype))).device(device));
}

// Initialises states with GANNET_STATE_FROM_PARAMETER, before the first update of their tensors.
inline void copy_first_values(const Optimizer& optimizer, const gannet_update_args& args, at::Device device) {
  for (size_t s = 0; s < optimizer.states().size(); ++s) {
    const Optimizer::State& state = optimizer.states()[s];
    if (!state.has(GANNET_STATE_FROM_PARAMETER)) continue;
    view_of(args, args.states[s], state.dtype == GANNET_DTYPE_NONE ? args.param_dtype : uint32_t{state.dtype}, device)
        .copy_(view_of(args, args.param, args.param_dtype, device));
  }
}

}  // namespace gannet
