// The optimizers of this plugin: those of the CPU, each family compiled again with translated addresses (CMakeLists.txt).
#pragma once

#include <gannet/abi.h>

namespace gannet::accelerators::checked {
extern const gannet_descriptor kAdam, kAdamW, kSgd, kLion, kAdagrad, kRmsprop, kNadam;
}  // namespace gannet::accelerators::checked

#define GANNET_CHECKED_OPTIMIZER_NAMES                                                                             \
  " optimizer/adam@checked optimizer/adamw@checked optimizer/sgd@checked optimizer/lion@checked"                   \
  " optimizer/adagrad@checked optimizer/rmsprop@checked optimizer/nadam@checked"
#define GANNET_CHECKED_OPTIMIZERS                                                                           \
  &gannet::accelerators::checked::kAdam, &gannet::accelerators::checked::kAdamW,                            \
      &gannet::accelerators::checked::kSgd, &gannet::accelerators::checked::kLion,                          \
      &gannet::accelerators::checked::kAdagrad, &gannet::accelerators::checked::kRmsprop,                   \
      &gannet::accelerators::checked::kNadam,
