// Adafactor's kernels for devices, run on the host.
#include "optimizers/adafactor/device.h"
#include "optimizers/hosted.h"

GANNET_PLUGINS("optimizer/adafactor@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::AdafactorOn<gannet::rules::Hosted>>("Adafactor", "cpu", "1.0.0",
                                                                                         "Adafactor, by its kernels"))
