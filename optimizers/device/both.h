// Macros for functions shared by the host and kernels:
//   GANNET_BOTH float half(float x) { return x / 2; }
#pragma once

#if defined(__CUDACC__) || defined(__HIP__)
#define GANNET_BOTH __host__ __device__ __forceinline__
#define GANNET_UNROLL _Pragma("unroll")
#define GANNET_UNROLL_BY(count) GANNET_PRAGMA_(unroll count)
#define GANNET_PRAGMA_(text) _Pragma(#text)
#else
#define GANNET_BOTH inline
#define GANNET_UNROLL
#define GANNET_UNROLL_BY(count)
#endif
