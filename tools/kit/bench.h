// `gannet plugins bench`: the time of an optimizer's step beside the machine's memory bandwidth, and
// beside other optimizers in the same run.
#pragma once

#include "kit/options.h"

namespace gannet::kit {

// Prints a line per round and the medians. Returns 0. Throws Error if a file cannot be opened, has
// no optimizer for the host's memory, or an optimizer does not support the types.
int bench_files(const BenchOptions& options);

}  // namespace gannet::kit
