// The names and descriptors of this plugin's optimizers, which are the CPU optimizers, compiled
// again with address translation (CMakeLists.txt).
#pragma once

#include <gannet/abi.h>

namespace gannet::accelerators::checked {
extern const gannet_descriptor kAdam, kAdamW, kSgd, kLion, kAdagrad, kRmsprop, kNadam, kSophia, kSam, kScheduleFree, kLamb, kMuon,
    kAdafactor, kAdam8bit;
}  // namespace gannet::accelerators::checked

// These are used in the ELF note and in the plugin table of checked.cpp, which is in the same
// namespace.
#define GANNET_CHECKED_OPTIMIZER_NAMES                                                 \
  " optimizer/adam@checked optimizer/adamw@checked optimizer/sgd@checked"              \
  " optimizer/lion@checked optimizer/adagrad@checked optimizer/rmsprop@checked"        \
  " optimizer/nadam@checked optimizer/sophia@checked optimizer/sam@checked"            \
  " optimizer/adamwschedulefree@checked optimizer/lamb@checked optimizer/muon@checked" \
  " optimizer/adafactor@checked optimizer/adamw8bit@checked"
#define GANNET_CHECKED_OPTIMIZERS                                                                                              \
  &kAdam, &kAdamW, &kSgd, &kLion, &kAdagrad, &kRmsprop, &kNadam, &kSophia, &kSam, &kScheduleFree, &kLamb, &kMuon, &kAdafactor, \
      &kAdam8bit
