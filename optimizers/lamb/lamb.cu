// LAMB on GPUs.
#include "optimizers/device/gpu.cuh"
#include "optimizers/lamb/device.h"

GANNET_PLUGINS("optimizer/lamb@" GANNET_GPU, GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::LambOn<gannet::rules::Gpu>>(
                   "Lamb", GANNET_GPU, GANNET_GPU_VERSION("1.0.0"),
                   "LAMB: Adam's direction with a trust ratio for each tensor" GANNET_GPU_NOTE))
