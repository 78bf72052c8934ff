// Muon's kernels for devices, run on the host.
#include "optimizers/hosted.h"
#include "optimizers/muon/device.h"

GANNET_PLUGINS("optimizer/muon@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::MuonOn<gannet::rules::Hosted>>("Muon", "cpu", "1.0.0",
                                                                                    "Muon, by its kernels"))
