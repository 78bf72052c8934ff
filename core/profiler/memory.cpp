#include "profiler/memory.h"

#include <torch/nn/module.h>

#include <unordered_set>

namespace gannet::profiler {

void add_memory(ModelProfile& profile, const Modules& modules, const std::string& name, const ModelProfile::Memory& bytes) {
  for (size_t module = modules.of_parameter(name);; module = modules.parent(module)) {
    profile.modules[module].memory += bytes;
    if (module == Modules::kRoot) return;
  }
}

void add_buffers(ModelProfile& profile, const Modules& modules, const torch::nn::Module& model) {
  std::unordered_set<const void*> seen;
  for (const auto& entry : model.named_buffers())
    if (entry.value().defined() && seen.insert(entry.value().unsafeGetTensorImpl()).second)
      add_memory(profile, modules, entry.key(), {.buffers = static_cast<int64_t>(entry.value().nbytes())});
}

void add_own_memory(ModelProfile& profile, const Modules& modules, const torch::nn::Module& model) {
  std::unordered_set<const void*> seen;
  for (const auto& entry : model.named_parameters())
    if (entry.value().defined() && seen.insert(entry.value().unsafeGetTensorImpl()).second)
      add_memory(profile, modules, entry.key(), {.parameters = static_cast<int64_t>(entry.value().nbytes())});
  add_buffers(profile, modules, model);
}

}  // namespace gannet::profiler
