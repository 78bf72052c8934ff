// Two tensors of a module in one memory, made after construction: of the kind that initialize() refuses (construction.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace gannet {

/// Error(kArgument): the memory that the program gave to one of these parameters, with their names, is also that of another
/// parameter or of a buffer of the module.
void refuse_overlap(const torch::nn::Module& module, const std::vector<std::pair<std::string, at::Tensor>>& given);

}  // namespace gannet
