// What load_checkpoint does with the checkpoint that the ranks have chosen (load.cpp).
#pragma once

#include "engine/impl.h"

namespace gannet {

// This rank's part of a load. Throws Error(kMismatch) with the first differences before anything was written, and leaves
// `torn` set for the caller, who knows how the other ranks fared and publishes the parameters.
LoadReceipt load_from(EngineBase::Impl& impl, const LoadOptions& options, const checkpoint::Opened& found);

}  // namespace gannet
