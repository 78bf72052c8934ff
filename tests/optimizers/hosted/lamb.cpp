// Lamb's kernels for devices, run on the host.
#include "optimizers/hosted.h"
#include "optimizers/lamb/device.h"

GANNET_PLUGINS("optimizer/lamb@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::LambOn<gannet::rules::Hosted>>("Lamb", "cpu", "1.0.0",
                                                                                    "Lamb, by its kernels"))
