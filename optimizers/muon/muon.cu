// Muon on GPUs.
#include "optimizers/device/gpu.cuh"
#include "optimizers/muon/device.h"

GANNET_PLUGINS("optimizer/muon@" GANNET_GPU, GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::MuonOn<gannet::rules::Gpu>>(
                   "Muon", GANNET_GPU, GANNET_GPU_VERSION("1.0.0"),
                   "Muon for matrices: orthogonalized momentum; Adam for vectors, embeddings and heads" GANNET_GPU_NOTE))
