/// The number of processes that train together, available before they are connected. Use it for
/// values that a program computes before gannet::initialize.
#pragma once

#include <cstdint>

namespace gannet {

/// Returns the world size; before init_distributed, the one that init_distributed would find in the
/// environment.
int64_t expected_world_size();

}  // namespace gannet
