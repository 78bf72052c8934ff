// Muon on CUDA devices.
#include "optimizers/device/cuda.cuh"
#include "optimizers/muon/device.h"

GANNET_PLUGINS("optimizer/muon@cuda", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::MuonOn<gannet::rules::Cuda>>(
                   "Muon", "cuda", "1.0.0", "Muon for matrices: orthogonalized momentum; Adam for vectors, embeddings and heads"))
