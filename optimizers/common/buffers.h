// What an element-wise kernel is given besides its rule, and which types it may meet.
#pragma once

#include <gannet/abi.h>

#include <cstdint>

namespace gannet::optimizers {

// The fused pass takes fp32 masters with gradients and copies in any 16-bit type, and fp64 masters alone.
inline bool elementwise_supports(uint32_t param, uint32_t grad, uint32_t out) {
  const bool half_out = out == GANNET_DTYPE_NONE || out == GANNET_BFLOAT16 || out == GANNET_FLOAT16;
  const bool float_grad = grad == GANNET_FLOAT32 || grad == GANNET_BFLOAT16 || grad == GANNET_FLOAT16;
  return (param == GANNET_FLOAT32 && float_grad && half_out) ||
         (param == GANNET_FLOAT64 && grad == GANNET_FLOAT64 && out == GANNET_DTYPE_NONE);
}

// Chunks that threads get are multiples of this many elements (but for the last): whole pages of every buffer.
inline constexpr uint64_t kGrain = 16384;

}  // namespace gannet::optimizers
