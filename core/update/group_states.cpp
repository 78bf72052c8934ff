#include "update/group_states.h"

#include <ATen/ops/full.h>

#include "tensor/dtype.h"

namespace gannet {

void describe_group(std::vector<Group>& groups, size_t number, const RankContext& context, const ParameterStore& store) {
  Optimizer::Context told{.group = static_cast<uint32_t>(number),
                          .group_count = static_cast<uint32_t>(groups.size()),
                          .rank = context.comm->rank(),
                          .world_size = context.comm->size(),
                          .device = context.updates_on_host() ? 0 : context.device_index(),
                          .tensors = {}};
  for (const TrainedParameter* parameter : store.parameters_of(number)) {
    const auto& shape = parameter->split ? parameter->split->shape : parameter->shape;
    told.tensors.push_back(
        {parameter->name, parameter->id, shape, static_cast<uint64_t>(parameter->split ? numel_of(shape) : parameter->numel)});
  }
  groups[number].optimizer->describe(told);
}

void grow_own_states(Group& group) {
  if (!group.optimizer) return;
  const auto& specs = group.optimizer->states();
  group.own_states.resize(specs.size());
  for (size_t s = 0; s < specs.size(); ++s) {
    if (specs[s].is_cut()) continue;
    const auto numel = static_cast<int64_t>(group.optimizer->group_numel(specs[s]));
    at::Tensor& values = group.own_states[s];
    if (values.defined() && values.numel() == numel) continue;
    const auto dtype = specs[s].dtype == GANNET_DTYPE_NONE ? at::kFloat : to_scalar_type(specs[s].dtype);
    at::Tensor grown = at::full({numel}, specs[s].initial_value, dtype);
    if (values.defined()) grown.narrow(0, 0, values.numel()).copy_(values);
    values = grown;
  }
}

}  // namespace gannet
