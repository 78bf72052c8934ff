// The parameters of one group in one dtype, laid out flat: what the optimizer, the reduction and the norm work on.
#pragma once

#include "interfaces/optimizer.h"
#include "tensor/flat_buffer.h"

#include <gannet/value.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gannet {

struct TrainedParameter {
  std::string name;
  at::Tensor tensor;            // the module's own; its data is a view of Range::param
  std::vector<int64_t> shape;
  int64_t numel = 0;
  int64_t offset = 0;           // elements into the range's buffers
  at::Tensor flat_grad;         // its part of Range::grad
  // This step's gradient so far, undefined before the first: flat_grad, or, where no rank is to be averaged with, the very
  // tensor that autograd made (taken over, not copied).
  at::Tensor held;
};

struct Range {
  size_t group = 0;
  at::ScalarType dtype;         // of the module's parameters
  at::ScalarType master_dtype;  // fp32 for 16-bit parameters, else dtype
  at::ScalarType grad_dtype;    // gradients are accumulated in it
  std::vector<TrainedParameter> parameters;
  int64_t numel = 0;            // padding included

  at::Tensor param;             // [numel] dtype
  at::Tensor master;            // [numel] master_dtype; the same storage as param where the dtypes are equal
  at::Tensor grad;              // [numel] grad_dtype; not touched, so not backed by memory, while gradients are taken over
  std::vector<at::Tensor> states;      // as the optimizer's specs say
  std::vector<gannet_segment> segments;      // in the whole range
  std::vector<gannet_segment> own_segments;  // of each tensor alone: offset 0

  bool has_master_copy() const { return master_dtype != dtype; }
  at::Tensor slice(const at::Tensor& flat, const TrainedParameter& parameter) const {
    return flat.narrow(0, parameter.offset, parameter.numel).view(parameter.shape);
  }
};

// Hyperparameters that are shared, and the plugin's object that applies the rule to the group's ranges.
struct Group {
  std::string name;
  std::unique_ptr<Optimizer> optimizer;  // null with the program's own optimizer
  std::vector<std::string> hyper_names;
  std::vector<double> hyper;             // current values, in the order of hyper_names
  double base_lr = 0;
  std::vector<at::Tensor> parameters;    // all of the group, for the program to read

  double* find(const std::string& hyperparameter) {
    for (size_t i = 0; i < hyper_names.size(); ++i)
      if (hyper_names[i] == hyperparameter) return &hyper[i];
    return nullptr;
  }
};

}  // namespace gannet
