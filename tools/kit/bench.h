// `gannet plugins bench`: compares the time of an optimizer's step with the machine's memory
// bandwidth and with other optimizers in the same run.
#pragma once

#include "kit/options.h"

namespace gannet::kit {

// Prints a line per round and the medians. Returns 0. Throws Error if a file cannot be opened or
// has no optimizer for host memory, or if an optimizer does not support the types.
int bench_files(const BenchOptions& options);

}  // namespace gannet::kit
