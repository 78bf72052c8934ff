// Adafactor on GPUs.
#include "optimizers/adafactor/device.h"
#include "optimizers/device/gpu.cuh"

GANNET_PLUGINS("optimizer/adafactor@" GANNET_GPU, GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::AdafactorOn<gannet::rules::Gpu>>(
                   "Adafactor", GANNET_GPU, GANNET_GPU_VERSION("1.0.0"),
                   "second moments by rows and columns, updates clipped by size" GANNET_GPU_NOTE))
