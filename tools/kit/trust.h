// `gannet plugins trust`: the list of plugins that a config with "plugins": {"trusted": ...} opens (plugin/trust.h).
#pragma once

#include "kit/options.h"

namespace gannet::kit {

// Adds and removes files, and prints the list where that is asked for. No code of a file runs. Returns 0; throws Error where a
// file is no plugin or the list cannot be used, and has changed nothing then.
int trust_files(const TrustOptions& options);

}  // namespace gannet::kit
