// AdamW8bit's kernels for devices, run on the host.
#include "optimizers/adam8bit/device.h"
#include "optimizers/hosted.h"

GANNET_PLUGINS("optimizer/adamw8bit@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::Adam8bitOn<gannet::rules::Hosted>>("AdamW8bit", "cpu", "1.0.0",
                                                                                        "AdamW8bit, by its kernels"))
