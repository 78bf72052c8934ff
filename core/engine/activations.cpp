#include "engine/activations.h"

#include <ATen/core/grad_mode.h>

namespace gannet {

Activations::Forward::Forward(const Activations& all) : configuration_(all.configuration), layers_(all.layers) {
  // In a region of the program's the region decides what is kept.
  if (!all.operators.empty() && at::GradMode::is_enabled() && !activation::is_dropping()) operators_.emplace(all.operators);
}

}  // namespace gannet
