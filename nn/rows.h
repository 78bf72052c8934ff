// Arguments of the row kernels, which are passed to the loops of each SIMD target (row_kernels.cpp)
// and are valid for any range of rows.
#pragma once

#include "nn/kernels.h"

namespace gannet::nn {

template <class T>
struct GeluRows {
  int64_t columns;
  T* inter;
  const T* bias;
  T* activated;
  bool is_tanh;
};
template <class T>
struct GeluBackwardRows {
  int64_t columns;
  const T* inter;
  T* gradient;
  bool is_tanh;
};
template <class T>
struct NormRows {
  int64_t columns;
  const T* input;
  Norm<T> norm;
  T *output, *mean, *rstd;
};
template <class T>
struct ResidualRows {
  int64_t columns;
  T* branch;
  const T *bias, *residual;
  Dropout dropout;
  const Norm<T>* norm;
  T *output, *mean, *rstd;
};
template <class T>
struct NormBackwardRows {
  int64_t columns;
  NormBackward<T> of;
  Norm<T> norm;
  T* result;
};
template <class T>
struct DropoutRows {
  int64_t columns;
  const T* gradient;
  Dropout dropout;
  T* result;
};

}  // namespace gannet::nn
