// Stores the splits and ties that programs have declared (gannet/split.h), by parameter.
//
//   remember_split(weight, std::make_shared<DeclaredSplit>(DeclaredSplit{{6, 4}, Split{{{{0, 0}, {3, 4}}}}}));
//   const auto split = split_of(weight);              // null: the parameter is not split
//   copy_from_whole(*split, whole, local);            // the rank's boxes of a whole tensor
//
// There is one table per process, under a lock. The entry of a destroyed parameter is removed at
// the next declaration.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "tensor/boxes.h"

namespace gannet {

struct DeclaredSplit {
  Shape shape;                   // shape of the whole tensor
  Split split;                   // never empty: a tensor that every rank has in full is not split
  bool is_along_expert = false;  // split along the mesh's axis expert, else along the axis tensor
  bool operator==(const DeclaredSplit&) const = default;
};

// A null `split` marks the parameter as not split. The parameter's summed gradient is divided by
// `divisor`; if that is 0, by the number of ranks along the axis data.
void remember_split(const at::Tensor& parameter, std::shared_ptr<const DeclaredSplit> split, double divisor = 0);
std::shared_ptr<const DeclaredSplit> split_of(const at::Tensor& parameter);
double divisor_of(const at::Tensor& parameter);

// The name by which the pipeline stages that hold a tied tensor identify it; "": the tensor is not
// tied.
void remember_tie(const at::Tensor& parameter, const std::string& name);
std::string tie_of(const at::Tensor& parameter);

// These functions copy between a whole tensor and the local tensor that the split's boxes make up.
void copy_from_whole(const DeclaredSplit& split, const at::Tensor& whole, const at::Tensor& local);
void copy_to_whole(const DeclaredSplit& split, const at::Tensor& local, const at::Tensor& whole);

// A split as text, to be sent to other ranks: numbers separated by spaces, then "expert" if the
// split is along that axis.
std::string to_text(const DeclaredSplit& split);
DeclaredSplit split_from_text(const std::string& text);

}  // namespace gannet
