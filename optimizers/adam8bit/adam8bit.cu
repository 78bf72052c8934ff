// AdamW8bit on GPUs.
#include "optimizers/adam8bit/device.h"
#include "optimizers/device/gpu.cuh"

GANNET_PLUGINS("optimizer/adamw8bit@" GANNET_GPU, GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::Adam8bitOn<gannet::rules::Gpu>>(
                   "AdamW8bit", GANNET_GPU, GANNET_GPU_VERSION("1.0.0"),
                   "AdamW with both moments in 8 bits, scaled by blocks" GANNET_GPU_NOTE))
