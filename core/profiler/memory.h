// Adds memory figures to the modules of a profile.
#pragma once

#include "profiler/modules.h"

namespace gannet::profiler {

// Adds bytes to the module that owns the parameter or buffer `name`, and to the module's ancestors.
void add_memory(ModelProfile& profile, const Modules& modules, const std::string& name, const ModelProfile::Memory& bytes);
// Adds the bytes of the model's own parameters and buffers.
void add_own_memory(ModelProfile& profile, const Modules& modules, const torch::nn::Module& model);
void add_buffers(ModelProfile& profile, const Modules& modules, const torch::nn::Module& model);

}  // namespace gannet::profiler
