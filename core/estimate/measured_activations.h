// What the layers of a model keep for backward, from one forward of one micro-batch: for an estimate, without an engine.
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

/// `forward` runs the module and returns its loss, of which no backward runs. Nothing that operators save is held, so that it
/// needs no more memory than inference. It runs once more where `recompute` names operators, and holds what those leave.
activation::Kept measure_activations(const torch::nn::Module& module, const std::function<at::Tensor()>& forward,
                                     const std::vector<std::string>& recompute);

}  // namespace gannet
