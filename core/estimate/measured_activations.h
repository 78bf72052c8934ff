// Measures the activations that the layers of a model keep for backward in one forward of one
// micro-batch. Used for estimates, without an engine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "activation/kept.h"

namespace at {
class Tensor;
}
namespace torch::nn {
class Module;
}

namespace gannet {

/// `forward` runs the module and returns its loss; no backward runs. The first run holds nothing
/// that operators save, so that it needs no more memory than inference. If `recompute` names
/// operators, `forward` runs a second time and holds the tensors that selective recomputation
/// keeps. Throws Error(kArgument) if the loss does not depend on a trained parameter.
activation::ActivationMeasurement measure_activations(const torch::nn::Module& module, const std::function<at::Tensor()>& forward,
                                                      const std::vector<std::string>& recompute);

}  // namespace gannet
