// Makes LibTorch's own step() the optimizer of a parameter group, so that the program's
// torch::optim::AdamW, for example, works at every ZeRO stage and on every tier.
//
//   group.optimizer = make_torch_rule({.type = type, .program = optimizer, .group = 0, .kept = states, .device = cpu});
//   group.optimizer->update(args);        // any piece: its arrays serve as a parameter and its states in one step()
//
// It is an optimizer like a plugin's, with a function table that comes from no file. The engine
// owns, cuts, pages and saves masters, gradients and states, and reads the program's object only
// for its settings. A second object of the same class takes the steps, so that the program's object
// stays unchanged even if a step fails.
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
  size_t group = 0;                           // index in the program's parameter groups
  std::vector<const TorchType::State*> kept;  // states that have memory
  c10::Device device{c10::kCPU};              // of the arrays in an update
};

/// Its hyperparameters start as the current settings of the program's object.
std::unique_ptr<Optimizer> make_torch_rule(TorchRuleOptions options);

}  // namespace gannet
