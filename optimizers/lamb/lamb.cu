// LAMB on CUDA devices.
#include "optimizers/device/cuda.cuh"
#include "optimizers/lamb/device.h"

GANNET_PLUGINS("optimizer/lamb@cuda", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::LambOn<gannet::rules::Cuda>>(
                   "Lamb", "cuda", "1.0.0", "LAMB: Adam's direction with a trust ratio for each tensor"))
