// Counts this machine's devices without a driver, and chooses which of them the ranks see.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gannet::launch {

// How many devices a program started here would see: NVIDIA's and AMD's device files below `root`, but at
// most the entries of CUDA_VISIBLE_DEVICES (or of HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES) in `environment`
// ("NAME=value"). 0: none, or none that can be counted this way.
uint32_t count_devices(const std::vector<std::string>& environment, const std::string& root = "");

// "CUDA_VISIBLE_DEVICES=4,6" for slots {0, 2} if the environment shows devices 4, 5 and 6: slots index the
// visible devices. AMD's runtime reads CUDA_VISIBLE_DEVICES too. Throws Error(kArgument) for a slot that is out
// of range.
std::string visible_devices(const std::vector<uint32_t>& slots, const std::vector<std::string>& environment,
                            const std::string& root = "");

// Whether the variable chooses devices of one machine, and so means nothing on another.
bool chooses_devices(const std::string& name);

}  // namespace gannet::launch
