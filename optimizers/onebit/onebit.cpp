// OneBitAdam, OneBitLamb and ZeroOneAdam on the CPU.
#include "optimizers/onebit/adam.h"
#include "optimizers/onebit/lamb.h"
#include "optimizers/onebit/zero_one.h"

GANNET_PLUGINS(
    "optimizer/onebitadam@cpu optimizer/onebitlamb@cpu optimizer/zerooneadam@cpu", GANNET_TIER_STABLE,
    gannet::sdk::optimizer<gannet::rules::OneBitAdam>("OneBitAdam", "cpu", "1.0.0",
                                                      "1-bit Adam: momenta travel as signs once the variance is frozen"),
    gannet::sdk::optimizer<gannet::rules::OneBitLamb>("OneBitLamb", "cpu", "1.0.0",
                                                      "1-bit LAMB: the same with a trust ratio for each tensor"),
    gannet::sdk::optimizer<gannet::rules::ZeroOneAdam>("ZeroOneAdam", "cpu", "1.0.0",
                                                       "0/1 Adam: gradients travel as signs, later updates of several steps"))
