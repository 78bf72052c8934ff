/// Number of processes that train together, before they are connected: for values that a program
/// computes before gannet::initialize.
#pragma once

#include <cstdint>

namespace gannet {

/// The world size; before init_distributed, the one that it would find in the environment.
int64_t expected_world_size();

}  // namespace gannet
