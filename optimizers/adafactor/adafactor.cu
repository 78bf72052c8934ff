// Adafactor on CUDA devices.
#include "optimizers/adafactor/device.h"
#include "optimizers/device/cuda.cuh"

GANNET_PLUGINS("optimizer/adafactor@cuda", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::AdafactorOn<gannet::rules::Cuda>>(
                   "Adafactor", "cuda", "1.0.0", "second moments by rows and columns, updates clipped by size"))
