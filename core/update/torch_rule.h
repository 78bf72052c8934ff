// LibTorch's own step() as a parameter group's optimizer: the program's torch::optim::AdamW, at every ZeRO stage and on every
// tier.
//
//   group.optimizer = make_torch_rule({.type = type, .program = optimizer, .group = 0, .kept = states, .device = cpu});
//   group.optimizer->update(args);        // any piece: its arrays are a parameter and its states for one step()
//
// It is an optimizer as a plugin's is, with a table of functions that no file has. The engine owns masters, gradients and states
// and cuts, pages and saves them; the program's object is read for what it is set to. The steps are taken by an object of the
// same class, so that the program's own is as the program left it whatever happens in a step.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "interfaces/optimizer.h"
#include "update/torch_types.h"

namespace gannet {

struct TorchRuleOptions {
  const TorchType& type;
  std::shared_ptr<torch::optim::Optimizer> program;
  size_t group = 0;                           // of the program's parameter groups
  std::vector<const TorchType::State*> kept;  // states that there is memory for
  c10::Device device{c10::kCPU};              // on which the arrays of an update are
};

/// Its hyperparameters are what the program's object is set to now.
std::unique_ptr<Optimizer> make_torch_rule(TorchRuleOptions options);

}  // namespace gannet
