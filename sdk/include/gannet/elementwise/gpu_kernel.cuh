// GPU facilities that kernels need besides the rules' arithmetic: the position of a thread, and
// 16-bit types. nvcc provides them. For HIP they are compiler builtins, since HIP's headers call a
// device library, and its older versions do not support newer GPUs.
#pragma once

#include <gannet/elementwise/gpu_runtime.h>
#include <gannet/elementwise/scalar.h>

#include <cstdint>

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace gannet::rules::gpu {

GANNET_DEVICE unsigned thread_index() { return threadIdx.x; }
GANNET_DEVICE unsigned block_index() { return blockIdx.x; }
GANNET_DEVICE unsigned block_size() { return blockDim.x; }
GANNET_DEVICE unsigned block_count() { return gridDim.x; }
GANNET_DEVICE void wait_for_block() { __syncthreads(); }

using BFloat16 = __nv_bfloat16;
using Half = __half;
GANNET_DEVICE float widen(Half value) { return __half2float(value); }
GANNET_DEVICE float widen(BFloat16 value) { return __bfloat162float(value); }
GANNET_DEVICE void narrow(float value, Half& to) { to = __float2half_rn(value); }
GANNET_DEVICE void narrow(float value, BFloat16& to) { to = __float2bfloat16_rn(value); }

// Rounds to the nearest integer, ties to even.
GANNET_DEVICE int to_integer(float value) { return __float2int_rn(value); }

}  // namespace gannet::rules::gpu

#else

#ifndef __launch_bounds__  // HIP defines it beside its device functions
#define __launch_bounds__(most_threads) __attribute__((amdgpu_flat_work_group_size(1, most_threads)))
#endif

namespace gannet::rules::gpu {

GANNET_DEVICE unsigned thread_index() { return __builtin_amdgcn_workitem_id_x(); }
GANNET_DEVICE unsigned block_index() { return __builtin_amdgcn_workgroup_id_x(); }
GANNET_DEVICE unsigned block_size() { return __builtin_amdgcn_workgroup_size_x(); }
GANNET_DEVICE unsigned block_count() { return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(); }
GANNET_DEVICE void wait_for_block() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

struct BFloat16 {
  uint16_t bits;
};
using Half = _Float16;
GANNET_DEVICE float widen(Half value) { return static_cast<float>(value); }
GANNET_DEVICE float widen(BFloat16 value) {
  const uint32_t bits = uint32_t{value.bits} << 16;
  float wide;
  __builtin_memcpy(&wide, &bits, sizeof(wide));
  return wide;
}
GANNET_DEVICE void narrow(float value, Half& to) { to = static_cast<Half>(value); }
// Rounds to the nearest, ties to even. A NaN remains a NaN, even if its payload was only in the
// low bits.
GANNET_DEVICE void narrow(float value, BFloat16& to) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  to.bits = value != value ? uint16_t{0x7fff} : static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Rounds to the nearest integer, ties to even.
GANNET_DEVICE int to_integer(float value) { return static_cast<int>(__builtin_rintf(value)); }

}  // namespace gannet::rules::gpu

#endif

namespace gannet::rules::gpu {
GANNET_DEVICE float widen(float value) { return value; }
GANNET_DEVICE double widen(double value) { return value; }
}  // namespace gannet::rules::gpu
