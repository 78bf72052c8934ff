// Parameters that are stored on other stages of a pipeline. Their tensors stay in the program's
// model, without elements, and a second engine must not mistake them for empty parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace gannet {

/// Frees the memory of a tensor that only other stages use.
void leave_to_other_stages(at::Tensor tensor);
/// Throws Error(kOrder) if a pipeline has left this tensor to other stages.
void refuse_of_other_stages(const std::string& name, const at::Tensor& tensor);

}  // namespace gannet
