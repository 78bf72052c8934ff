// Refuses two module tensors that share memory if the program causes this after construction. At
// construction, initialize() refuses them as well (construction.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace gannet {

/// Throws Error(kArgument) if another parameter or a buffer of the module also uses the memory that
/// the program assigned to one of these parameters (with their names).
void refuse_overlap(const torch::nn::Module& module, const std::vector<std::pair<std::string, at::Tensor>>& given);

}  // namespace gannet
