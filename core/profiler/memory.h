// Bytes into a profile's modules.
#pragma once

#include "profiler/modules.h"

namespace gannet::profiler {

// To the module that the parameter or buffer called `name` belongs to, and to those above it.
void add_memory(ModelProfile& profile, const Modules& modules, const std::string& name, const ModelProfile::Memory& bytes);
// Parameters and buffers as they lie in the model.
void add_own_memory(ModelProfile& profile, const Modules& modules, const torch::nn::Module& model);
void add_buffers(ModelProfile& profile, const Modules& modules, const torch::nn::Module& model);

}  // namespace gannet::profiler
