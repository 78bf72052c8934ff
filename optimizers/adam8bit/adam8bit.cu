// AdamW8bit on CUDA devices.
#include "optimizers/adam8bit/device.h"
#include "optimizers/device/cuda.cuh"

GANNET_PLUGINS("optimizer/adamw8bit@cuda", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::Adam8bitOn<gannet::rules::Cuda>>(
                   "AdamW8bit", "cuda", "1.0.0", "AdamW with both moments in 8 bits, scaled by blocks"))
