// Makes LibTorch's own step() the optimizer of a parameter group, so that the program's
// torch::optim::AdamW, for example, works at every ZeRO stage and on every tier.
//
//   group.optimizer = make_torch_rule({.type = type, .program = optimizer, .group = 0, .kept = states, .device = cpu});
//   group.optimizer->update(args);        // any piece: step() runs on views of its arrays, block by block
//
// To the engine it is a plugin optimizer with a built-in function table. The engine owns, shards,
// pages and saves masters, gradients and states. This file only reads settings from the program's
// object: a second object of the same class runs step(), so that the program's object stays
// unchanged even if a step fails.
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
  c10::Device device{c10::kCPU};              // holds the arrays of an update
};

/// The hyperparameters start as the current settings of the program's object.
std::unique_ptr<Optimizer> make_torch_rule(TorchRuleOptions options);

}  // namespace gannet
