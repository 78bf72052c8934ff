// Functions that the host and a kernel have in common: GANNET_BOTH float half(float x) { return x / 2; }
#pragma once

#ifdef __CUDACC__
#define GANNET_BOTH __host__ __device__ __forceinline__
#define GANNET_UNROLL _Pragma("unroll")
#else
#define GANNET_BOTH inline
#define GANNET_UNROLL
#endif
