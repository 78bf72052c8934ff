#include "engine/checkpoint/state_entries.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <gannet/rng_tracker.h>
#include <torch/nn/module.h>

#include <mutex>
#include <unordered_set>

#include "base/format.h"
#include "base/text.h"
#include "engine/checkpoint/rank_states.h"
#include "engine/ties.h"
#include "tensor/dtype.h"

namespace gannet {

namespace {

StateEntry whole_of(StateEntry::Kind kind, const std::string& name, const at::Tensor& tensor) {
  return {kind, name, tensor.sizes().vec(), tensor.scalar_type(), tensor, {}};
}

// Completes the entry of a parameter or of a per-element state that consists of boxes of a larger
// tensor.
StateEntry with_split(StateEntry entry, const std::shared_ptr<const DeclaredSplit>& split) {
  if (!split) return entry;
  entry.shape = split->shape;
  entry.split = split->split;
  entry.differs_along = {split->is_along_expert ? kExpertAxis : kTensorAxis};
  return entry;
}

// Makes the entry of a tensor part, which starts at element `place` of the array.
StateEntry part_of(StateEntry::Kind kind, const std::string& name, const TrainedParameter& parameter, const Array& array,
                   int64_t place, const zero::TensorPart& part) {
  StateEntry kept{kind, name, parameter.shape, array.dtype(), {}, {}, part.begin};
  if (part.numel == 0) return kept;
  if (array.is_here()) {
    kept.part = array.get(place, part.numel);
  } else {
    kept.part = at::empty({part.numel}, at::TensorOptions().dtype(array.dtype()).device(at::kMeta));
    kept.stored = array.stored(place);
  }
  return kept;
}

// Makes the entry of a state with one value per block. A rank has the values for the blocks in its
// part of the parameter.
StateEntry blocks_of(const std::string& name, const Optimizer::State& state, const Range& range,
                     const TrainedParameter& parameter, const Array& array, const zero::TensorPart& part) {
  const zero::TensorPart values = Range::values_in(part, state);
  if (range.has_all_of(array)) return whole_of(StateEntry::Kind::kState, name, array.get(values.own, values.numel));
  return {StateEntry::Kind::kState,
          name,
          {static_cast<int64_t>(state.values_of(static_cast<uint64_t>(parameter.numel)))},
          array.dtype(),
          {},
          values.numel > 0 ? array.get(values.own, values.numel) : at::Tensor(),
          values.begin};
}

// Adds a tensor's squares or factors, which are on the rank that has the tensor. If all ranks have
// the tensor, all have the same ones.
void add_matrices(std::vector<StateEntry>& all, const std::string& name, const Group& group, size_t s,
                  const TrainedParameter& parameter, bool has_every_tensor) {
  const Optimizer::State& state = group.optimizer->states()[s];
  const Optimizer::Matrices of = group.optimizer->matrices_of(state, parameter.index);
  if (of.numel() == 0) return;
  const at::Tensor& here = group.squares[s][parameter.index];
  const auto dtype = state.dtype == GANNET_DTYPE_NONE ? at::kFloat : to_scalar_type(state.dtype);
  StateEntry entry{StateEntry::Kind::kState,
                   name,
                   {static_cast<int64_t>(of.count), static_cast<int64_t>(of.rows), static_cast<int64_t>(of.columns)},
                   dtype,
                   {},
                   {}};
  if (has_every_tensor)
    entry.whole = here;
  else if (here.defined())
    entry.part = here.view({-1});
  all.push_back(std::move(entry));
}

// Returns, for each parameter, the part that is on this rank, or an empty part.
std::vector<zero::TensorPart> part_of_each(const Range& range, const std::vector<zero::TensorPart>& here) {
  std::vector<zero::TensorPart> parts(range.parameters.size());
  for (const auto& part : here) parts[part.tensor] = part;
  return parts;
}
std::vector<zero::TensorPart> part_of_each(const Range& range) { return part_of_each(range, range.parts); }

// Does the same for SERVED states, which are distributed like ZeRO's shards.
std::vector<zero::TensorPart> served_parts(const Range& range) {
  if (!range.is_optimizer_reduced) return {};
  return part_of_each(
      range, zero::parts_of(range.layout, zero::shards_of(range.layout, range.ranks.comm->rank(), range.ranks.comm->size())));
}

void refuse_late_declarations(const EngineBase::Impl& impl) {
  if (declared_splits(*impl.module) != impl.splits)
    throw Error(ErrorCode::kOrder, "a split of a parameter was declared after initialize, which the engine has not seen",
                "declare splits before initialize, in the layer's constructor");
  if (declared_ties(impl) != (impl.ties ? impl.ties->declared() : ""))
    throw Error(ErrorCode::kOrder, "a tied parameter was declared after initialize, which the engine has not seen",
                "declare ties before initialize, in the layer's constructor");
}

using EntryKind = StateEntry::Kind;

// Makes the entry of a parameter's per-element array: the whole array if this rank has it, else this
// rank's part.
StateEntry elements_of(EntryKind kind, const std::string& name, const Range& range, const TrainedParameter& parameter,
                       const Array& array, const zero::TensorPart& part) {
  return with_split(range.has_all_of(array) ? whole_of(kind, name, range.slice(array.here(), parameter))
                                            : part_of(kind, name, parameter, array, part.own, part),
                    parameter.split);
}

StateEntry master_of(EntryKind kind, const Range& range, const TrainedParameter& parameter, const zero::TensorPart& part) {
  const Array& masters = range.masters();
  if (range.has_all_of(masters))
    return with_split(whole_of(kind, parameter.name, range.whole_master(parameter)), parameter.split);
  const int64_t own = range.master_place({part.offset, part.own, part.numel});
  return with_split(part_of(kind, parameter.name, parameter, masters, own, part), parameter.split);
}

// Adds the trained and frozen parameters, with their moving averages, and the buffers.
void add_values(const EngineBase::Impl& impl, std::vector<StateEntry>& all) {
  std::unordered_set<const void*> seen;
  const auto add = [&](const Range& range, EntryKind kind) {
    const auto parts = part_of_each(range);
    for (size_t p = 0; p < parts.size(); ++p) {
      const auto& parameter = range.parameters[p];
      if (parameter.is_moved) continue;
      seen.insert(parameter.tensor.unsafeGetTensorImpl());
      if (range.average.defined())
        all.push_back(elements_of(EntryKind::kAverage, parameter.name, range, parameter, range.average, parts[p]));
      all.push_back(master_of(kind, range, parameter, parts[p]));
    }
  };
  for (const auto& range : impl.store.ranges()) add(range, EntryKind::kTrained);
  for (const auto& range : impl.store.frozen()) add(range, EntryKind::kFrozen);
  for (const auto& entry : impl.module->named_parameters())
    if (seen.insert(entry.value().unsafeGetTensorImpl()).second)
      all.push_back(with_split(whole_of(EntryKind::kFrozen, entry.key(), entry.value().detach()), split_of(entry.value())));
  for (const auto& entry : impl.module->named_buffers())
    if (entry.value().defined() && seen.insert(entry.value().unsafeGetTensorImpl()).second)
      all.push_back(whole_of(EntryKind::kBuffer, entry.key(), entry.value().detach()));
}

// Adds state `s` of every parameter of a range. It must not be a whole-group state.
void add_state(const Range& range, const Group& group, size_t s, const DifferenceTest& differs, std::vector<StateEntry>& all) {
  const Optimizer::State& state = group.optimizer->states()[s];
  const auto parts = part_of_each(range), served = served_parts(range);
  const auto of_group = [&](uint64_t begin, uint64_t count) {
    return group.group_states[s].narrow(0, static_cast<int64_t>(begin), static_cast<int64_t>(count));
  };
  for (size_t p = 0; p < range.parameters.size(); ++p) {
    const auto& parameter = range.parameters[p];
    if (state.is_local() && differs(range, parameter)) continue;  // handled in rank_states.cpp
    const std::string name = formatted("{}/{}", state.name, parameter.name);
    if (state.has_matrices())
      add_matrices(all, name, group, s, parameter, range.has_every_tensor());
    else if (state.extent == GANNET_STATE_PER_TENSOR)
      all.push_back(whole_of(EntryKind::kState, name, of_group(parameter.index, 1).view({})));
    else if (state.extent == GANNET_STATE_PER_ROW)
      all.push_back(whole_of(EntryKind::kState, name, of_group(parameter.lines.first_row, parameter.lines.row_count)));
    else if (state.extent == GANNET_STATE_PER_COLUMN)
      all.push_back(whole_of(EntryKind::kState, name, of_group(parameter.lines.first_column, parameter.lines.column_count)));
    else if (state.extent == GANNET_STATE_PER_BLOCK)
      all.push_back(blocks_of(name, state, range, parameter, range.states[s], parts[p]));
    else if (range.is_served(state))
      all.push_back(part_of(EntryKind::kState, name, parameter, range.states[s], served[p].own, served[p]));
    else
      all.push_back(elements_of(EntryKind::kState, name, range, parameter, range.states[s], parts[p]));
  }
}

// Adds the optimizer states. Returns the names of those that belong to a whole group.
std::unordered_set<std::string> add_states(const EngineBase::Impl& impl, const DifferenceTest& differs,
                                           std::vector<StateEntry>& all) {
  std::unordered_set<std::string> of_groups;
  for (const auto& range : impl.store.ranges()) {
    const Group& group = impl.groups[range.group];
    if (!group.optimizer) continue;
    const auto& specs = group.optimizer->states();
    for (size_t s = 0; s < specs.size(); ++s) {
      if (specs[s].is_of_rank()) continue;           // handled in rank_states.cpp
      if (specs[s].extent == GANNET_STATE_SCALAR) {  // a state of the group, which its first range adds
        const std::string name = formatted("{}/@{}", specs[s].name, range.group);
        if (of_groups.insert(name).second) all.push_back(whole_of(EntryKind::kState, name, group.group_states[s].view({})));
      } else {
        add_state(range, group, s, differs, all);
      }
    }
  }
  return of_groups;
}

// Pipeline stages have different tensors, except for tied ones, which the first of their stages
// saves. An optimizer's scalar states of a group are the same on all stages.
void mark_stages(const EngineBase::Impl& impl, const std::unordered_set<std::string>& of_groups, std::vector<StateEntry>& all) {
  if (impl.mesh->has_pipe_stages())
    for (StateEntry& entry : all)
      if (entry.kind != EntryKind::kState || !of_groups.contains(entry.name)) entry.differs_along.push_back(kPipeAxis);
  if (!impl.ties) return;
  for (StateEntry& entry : all)
    if (const Tie* const tie = entry.kind != EntryKind::kBuffer ? impl.ties->find(parameter_of(entry)) : nullptr) {
      entry.saved_as = tie->parameters[0];
      entry.also_saved_as = tie->parameters;
      entry.is_given_here = entry.is_given_here && tie->is_first;
    }
}

}  // namespace

std::vector<StateEntry> state_entries(const EngineBase::Impl& impl) {
  return state_entries(impl, [&](const Range& range, const TrainedParameter&) { return ranks_differ(impl, range.group); });
}

std::vector<StateEntry> state_entries(const EngineBase::Impl& impl, const DifferenceTest& differs) {
  refuse_late_declarations(impl);
  std::vector<StateEntry> all;
  add_values(impl, all);
  mark_stages(impl, add_states(impl, differs, all), all);
  return all;
}

bool keeps_model_parts(const EngineBase::Impl& impl) {
  return impl.mesh->has_pipe_stages() || (impl.tensor_group && !impl.splits.empty());
}

std::string user_optimizer_name(const EngineBase::Impl& impl) {
  if (!keeps_model_parts(impl)) return "optimizer/user";
  std::vector<std::string> place;
  for (const MeshAxis& axis : impl.mesh->shape().axes())
    if (axis.name != kDataAxis && axis.size > 1)
      place.push_back(formatted("{}{}", axis.name, impl.mesh->shape().coordinate(impl.world_group->rank(), axis.name)));
  return formatted("optimizer/user/{}", join(place, "."));
}

std::vector<std::pair<std::string, at::Generator>> generators(const EngineBase::Impl& impl) {
  std::vector<std::pair<std::string, at::Generator>> all = {{"cpu", at::detail::getDefaultCPUGenerator()}};
  if (!impl.computes_on_host()) all.emplace_back("device", at::globalContext().defaultGenerator(impl.device));
  return all;
}

std::vector<std::pair<std::string, at::Tensor>> random_states(const EngineBase::Impl& impl) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (auto& [name, generator] : generators(impl)) {
    const std::lock_guard lock(generator.mutex());
    all.emplace_back(name, generator.get_state());
  }
  for (const auto& [name, of_devices] : checkpointing::rng_tracker().get_states())
    for (const auto& [device, state] : of_devices) all.emplace_back(formatted("stream/{}/{}", name, device), state);
  return all;
}

}  // namespace gannet
