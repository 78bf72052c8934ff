// `gannet plugins trust`: the list of plugins that a config with "plugins": {"trusted": ...} opens
// (plugin/trust.h).
#pragma once

#include "kit/options.h"

namespace gannet::kit {

// Adds and removes files, and prints the list if requested. Runs no code from the files. Returns 0.
// Throws Error if a file is not a plugin or the list cannot be used; the list is then unchanged.
int trust_files(const TrustOptions& options);

}  // namespace gannet::kit
