#include "engine/inventory.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <torch/nn/module.h>

#include <unordered_set>

namespace gannet {

std::vector<Kept> inventory(const EngineBase::Impl& impl) {
  std::vector<Kept> all;
  std::unordered_set<const void*> seen;
  for (const auto& range : impl.ranges)
    for (const auto& parameter : range.parameters) {
      seen.insert(parameter.tensor.unsafeGetTensorImpl());
      all.push_back({Kept::Kind::kTrained, parameter.name, range.slice(range.master, parameter)});
    }
  for (const auto& entry : impl.module->named_parameters())
    if (seen.insert(entry.value().unsafeGetTensorImpl()).second) all.push_back({Kept::Kind::kFrozen, entry.key(), entry.value().detach()});
  for (const auto& entry : impl.module->named_buffers())
    if (entry.value().defined() && seen.insert(entry.value().unsafeGetTensorImpl()).second)
      all.push_back({Kept::Kind::kBuffer, entry.key(), entry.value().detach()});
  for (const auto& range : impl.ranges) {
    const Group& group = impl.groups[range.group];
    if (!group.optimizer) continue;
    const auto& specs = group.optimizer->states();
    for (size_t s = 0; s < specs.size(); ++s) {
      const std::string state = std::string(specs[s].name) + "/";
      if (specs[s].extent == GANNET_STATE_SCALAR) {
        all.push_back({Kept::Kind::kState, state + "@" + std::to_string(range.group) + "." + c10::toString(range.dtype), range.states[s].view({})});
        continue;
      }
      for (size_t p = 0; p < range.parameters.size(); ++p) {
        const auto& parameter = range.parameters[p];
        const bool per_tensor = specs[s].extent == GANNET_STATE_PER_TENSOR;
        all.push_back({Kept::Kind::kState, state + parameter.name,
                       per_tensor ? range.states[s].select(0, static_cast<int64_t>(p)) : range.slice(range.states[s], parameter)});
      }
    }
  }
  return all;
}

std::string stored_name(const Kept& kept, uint32_t rank) {
  switch (kept.kind) {
    case Kept::Kind::kBuffer: return "buffer/" + std::to_string(rank) + "/" + kept.name;
    case Kept::Kind::kState: return "state/" + kept.name;
    default: return "parameter/" + kept.name;
  }
}

std::vector<std::pair<std::string, at::Generator>> generators(const EngineBase::Impl& impl) {
  std::vector<std::pair<std::string, at::Generator>> all = {{"cpu", at::detail::getDefaultCPUGenerator()}};
  if (!impl.device.is_cpu()) all.emplace_back("device", at::globalContext().defaultGenerator(impl.device));
  return all;
}

}  // namespace gannet
