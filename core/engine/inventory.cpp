#include "engine/inventory.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <torch/nn/module.h>

#include <unordered_set>

namespace gannet {

namespace {

Kept whole_of(Kept::Kind kind, const std::string& name, const at::Tensor& tensor) {
  return {kind, name, tensor.sizes().vec(), tensor.scalar_type(), tensor, {}};
}

// Of each parameter the part that lies on this rank, and an empty one where none does.
std::vector<zero::Part> part_of_each(const Range& range) {
  std::vector<zero::Part> parts(range.parameters.size());
  for (const auto& part : range.parts) parts[part.tensor] = part;
  return parts;
}

}  // namespace

std::vector<Kept> inventory(const EngineBase::Impl& impl) {
  std::vector<Kept> all;
  std::unordered_set<const void*> seen;
  const auto add = [&](const Range& range, Kept::Kind kind) {
    const auto parts = part_of_each(range);
    for (size_t p = 0; p < parts.size(); ++p) {
      const auto& parameter = range.parameters[p];
      seen.insert(parameter.tensor.unsafeGetTensorImpl());
      if (!range.is_sharded()) {
        all.push_back(whole_of(kind, parameter.name, range.whole_master(parameter)));
        continue;
      }
      Kept kept{kind, parameter.name, parameter.shape, range.master_dtype, {}, {}, parts[p].begin};
      if (parts[p].numel > 0) kept.part = range.master_of({parts[p].offset, parts[p].own, parts[p].numel});
      all.push_back(std::move(kept));
    }
  };
  for (const auto& range : impl.ranges) add(range, Kept::Kind::kTrained);
  for (const auto& range : impl.frozen) add(range, Kept::Kind::kFrozen);
  for (const auto& entry : impl.module->named_parameters())
    if (seen.insert(entry.value().unsafeGetTensorImpl()).second) all.push_back(whole_of(Kept::Kind::kFrozen, entry.key(), entry.value().detach()));
  for (const auto& entry : impl.module->named_buffers())
    if (entry.value().defined() && seen.insert(entry.value().unsafeGetTensorImpl()).second)
      all.push_back(whole_of(Kept::Kind::kBuffer, entry.key(), entry.value().detach()));
  for (const auto& range : impl.ranges) {
    const Group& group = impl.groups[range.group];
    if (!group.optimizer) continue;
    const auto parts = part_of_each(range);
    const auto& specs = group.optimizer->states();
    for (size_t s = 0; s < specs.size(); ++s) {
      const std::string state = std::string(specs[s].name) + "/";
      const at::Tensor& values = range.states[s];
      if (specs[s].extent == GANNET_STATE_SCALAR) {
        all.push_back(whole_of(Kept::Kind::kState, state + "@" + std::to_string(range.group) + "." + c10::toString(range.dtype), values.view({})));
        continue;
      }
      for (size_t p = 0; p < range.parameters.size(); ++p) {
        const auto& parameter = range.parameters[p];
        if (!range.is_sharded()) {
          all.push_back(whole_of(Kept::Kind::kState, state + parameter.name,
                                 specs[s].extent == GANNET_STATE_PER_TENSOR ? values.select(0, static_cast<int64_t>(p)) : range.slice(values, parameter)));
          continue;
        }
        Kept kept{Kept::Kind::kState, state + parameter.name, parameter.shape, values.scalar_type(), {}, {}, parts[p].begin};
        if (specs[s].extent == GANNET_STATE_PER_TENSOR) {  // on every rank; right on those that updated a part of the tensor
          kept.shape = {};
          kept.begin = 0;
          kept.part = values.narrow(0, static_cast<int64_t>(p), 1);
          kept.is_given_here = parts[p].numel > 0 && parts[p].begin == 0;
        } else if (parts[p].numel > 0) {
          kept.part = values.narrow(0, parts[p].own, parts[p].numel);
        }
        all.push_back(std::move(kept));
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
