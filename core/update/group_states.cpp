#include "update/group_states.h"

#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>

#include <string>
#include <unordered_map>

#include "tensor/dtype.h"

namespace gannet {

void describe_group(std::vector<Group>& groups, size_t number, const RankContext& context, const ParameterStore& store) {
  Optimizer::Context told{.group = static_cast<uint32_t>(number),
                          .group_count = static_cast<uint32_t>(groups.size()),
                          .rank = context.comm->rank(),
                          .world_size = context.comm->size(),
                          .device = context.updates_on_host() ? 0 : context.device_index(),
                          .tensors = {}};
  std::unordered_map<uint64_t, std::string> ties;
  for (const Range& range : store.ranges())
    for (const TrainedParameter& parameter : range.parameters)
      if (!range.tie.empty()) ties[parameter.id] = range.tie;
  for (const TrainedParameter* parameter : store.parameters_of(number)) {
    const auto& shape = parameter->split ? parameter->split->shape : parameter->shape;
    told.tensors.push_back({parameter->name, parameter->id, shape,
                            static_cast<uint64_t>(parameter->split ? numel_of(shape) : parameter->numel), ties[parameter->id]});
  }
  groups[number].optimizer->describe(told);
}

void grow_group_states(Group& group) {
  if (!group.optimizer) return;
  const auto& specs = group.optimizer->states();
  group.group_states.resize(specs.size());
  for (size_t s = 0; s < specs.size(); ++s) {
    if (!specs[s].is_of_group()) continue;
    const auto numel = static_cast<int64_t>(group.optimizer->group_numel(specs[s]));
    at::Tensor& values = group.group_states[s];
    if (values.defined() && values.numel() == numel) continue;
    const auto dtype = specs[s].dtype == GANNET_DTYPE_NONE ? at::kFloat : to_scalar_type(specs[s].dtype);
    at::Tensor grown = at::full({numel}, specs[s].initial_value, dtype);
    if (values.defined()) grown.narrow(0, 0, values.numel()).copy_(values);
    values = grown;
  }
}

void grow_squares(Group& group, size_t number, const RankContext& context, const ParameterStore& store) {
  if (!group.optimizer || !group.optimizer->has_matrix_states()) return;
  const Optimizer& optimizer = *group.optimizer;
  const auto& specs = optimizer.states();
  group.squares.resize(specs.size());
  for (size_t s = 0; s < specs.size(); ++s) {
    if (!specs[s].has_matrices()) continue;
    group.squares[s].resize(optimizer.tensor_count());
    const auto dtype = specs[s].dtype == GANNET_DTYPE_NONE ? at::kFloat : to_scalar_type(specs[s].dtype);
    for (const Range& range : store.ranges()) {
      if (range.group != number) continue;
      for (const zero::TensorPart& part : range.parts) {  // each part is a whole tensor, as the optimizer requires
        const TrainedParameter& parameter = range.parameters[part.tensor];
        at::Tensor& square = group.squares[s][parameter.index];
        const Optimizer::Matrices of = optimizer.matrices_of(specs[s], parameter.index);
        if (part.numel == 0 || of.numel() == 0 || square.defined()) continue;
        const auto count = static_cast<int64_t>(of.count), rows = static_cast<int64_t>(of.rows);
        const auto options = at::TensorOptions().dtype(dtype).device(context.update_device());
        if (specs[s].is_square())
          square = at::eye(rows, options).mul_(specs[s].initial_value).repeat({count, 1, 1});
        else
          square = at::full({count, rows, static_cast<int64_t>(of.columns)}, specs[s].initial_value, options);
      }
    }
  }
}

void squares_of(const Group& group, const Segment* segments, size_t count, std::vector<void*>& into) {
  into.clear();
  if (group.squares.empty()) return;
  for (size_t k = 0; k < count; ++k)
    for (const auto& of_state : group.squares) {
      const uint64_t tensor = segments[k].tensor_index;
      into.push_back(tensor < of_state.size() && of_state[tensor].defined() ? of_state[tensor].data_ptr() : nullptr);
    }
}

}  // namespace gannet
