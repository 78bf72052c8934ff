/// How many processes train together, before they have met: for what a program computes ahead of gannet::initialize.
#pragma once

#include <cstdint>

namespace gannet {

/// The size of the world, or where init_distributed was not called yet, the one that it would find in the environment.
int64_t expected_world_size();

}  // namespace gannet
