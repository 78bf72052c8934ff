// Values by name: a parameter's master, gradient and optimizer states, whole or this rank's part, wherever they lie.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include "base/format.h"
#include "base/text.h"
#include "control/world.h"
#include "engine/impl.h"
#include "engine/state_entries.h"
#include "tensor/dtype.h"

namespace gannet {
namespace {

struct Found {
  Range* range;
  size_t parameter;
  const TrainedParameter& get() const { return range->parameters[parameter]; }
};

Found find(EngineBase::Impl& impl, const std::string& name) {
  std::vector<std::string> names;
  for (auto& range : impl.ranges)
    for (size_t p = 0; p < range.parameters.size(); ++p) {
      if (range.parameters[p].name == name) return {&range, p};
      names.push_back(range.parameters[p].name);
    }
  throw Error(ErrorCode::kNotFound, formatted("no trained parameter is called '{}'{}", name, did_you_mean(name, names)),
              "engine->parameter_names() lists them");
}

size_t state_index(EngineBase::Impl& impl, const Found& found, const std::string& state) {
  const auto& optimizer = impl.groups[found.range->group].optimizer;
  std::vector<std::string> names;
  if (optimizer)
    for (size_t s = 0; s < optimizer->states().size(); ++s) {
      if (optimizer->states()[s].name == state && optimizer->states()[s].extent == GANNET_STATE_PER_ELEMENT) return s;
      if (optimizer->states()[s].extent == GANNET_STATE_PER_ELEMENT) names.push_back(optimizer->states()[s].name);
    }
  throw Error(ErrorCode::kNotFound,
              formatted("the optimizer keeps no state '{}' of each element{}", state, did_you_mean(state, names)),
              names.empty() ? "it keeps none" : formatted("it keeps {}", join(names, ", ")));
}

// What this rank has of the parameter; numel 0: nothing.
zero::Part part_of(const Found& found) {
  for (const auto& part : found.range->parts)
    if (part.tensor == found.parameter) return part;
  return {};
}

// From every rank's part to the whole, to the bit: where a rank has nothing it adds zeros, byte by byte.
at::Tensor gather(EngineBase::Impl& impl, const Found& found, const zero::Part& part, const at::Tensor& mine) {
  if (!found.range->is_sharded()) return Range::shaped(mine.to(impl.device, /*non_blocking=*/false, /*copy=*/true), found.get());
  at::Tensor whole = at::zeros({found.get().numel}, mine.options().device(impl.device));
  if (part.numel > 0) whole.narrow(0, part.begin, part.numel).copy_(mine);
  impl.comm->all_reduce(whole.view(at::kByte)).wait();
  return Range::shaped(whole, found.get());
}

zero::Shard place_of(const zero::Part& part) { return {part.offset, part.own, part.numel}; }

at::Tensor own_master(const Found& found, const zero::Part& part) { return found.range->master_of(place_of(part)); }

void require_gradient(EngineBase::Impl& impl, const Found& found) {
  if (!impl.reducer || !impl.progress.has_backwarded() || (impl.comm->size() > 1 && !impl.reducer->is_reduced()))
    throw Error(ErrorCode::kOrder, formatted("there is no gradient of '{}' now", found.get().name),
                "ask between the last backward() of a step and its step()");
  impl.reducer->wait();
}

// Averaged and unscaled, in the masters' dtype.
at::Tensor own_gradient(EngineBase::Impl& impl, const Found& found, const zero::Part& part) {
  require_gradient(impl, found);
  const auto& range = *found.range;
  const at::Tensor gradient = range.is_sharded() ? range.grad_of(place_of(part)) : found.get().held.flatten();
  return gradient.to(range.master_dtype).mul(impl.reducer->mean_factor() / impl.scaler.scale());
}

// Rank 0's on every rank, flat, on the host.
at::Tensor agreed_value(EngineBase::Impl& impl, const Found& found, const at::Tensor& value, at::ScalarType dtype) {
  const at::Tensor real = value.defined() && value.is_complex() ? at::view_as_real(value.resolve_conj()) : value;
  if (!value.defined() || real.sizes() != at::IntArrayRef(found.get().shape))
    throw Error(ErrorCode::kArgument,
                formatted("a value for '{}' has shape {}, the parameter has {}", found.get().name,
                          value.defined() ? shape_text(value.sizes().vec()) : "undefined", shape_text(found.get().shape)));
  const at::Tensor flat = real.detach().to(impl.device, dtype, /*non_blocking=*/false, /*copy=*/true).contiguous().flatten();
  impl.broadcast(flat);
  return flat.to(at::kCPU);
}

control::Watch::Call enter(EngineBase::Impl& impl, const char* name, const std::string& parameter) {
  return control::Watch::Call(impl.process_group->world()->watch(), *impl.world_group, name, impl.progress.global_steps,
                              parameter, control::Watch::Call::kTogether);
}

}  // namespace

std::vector<std::string> EngineBase::parameter_names() const {
  std::vector<std::string> names;
  for (const auto& range : impl_->ranges)
    for (const auto& parameter : range.parameters) names.push_back(parameter.name);
  return names;
}

std::vector<std::string> EngineBase::optimizer_states() const {
  std::vector<std::string> names;
  if (!impl_->groups.empty() && impl_->groups[0].optimizer)
    for (const auto& state : impl_->groups[0].optimizer->states()) names.push_back(state.name);
  return names;
}

at::Tensor EngineBase::full_fp32_parameter(const std::string& name) {
  at::NoGradGuard no_grad;
  const Found found = find(*impl_, name);
  if (impl_->reducer && impl_->progress.is_whole()) impl_->audit();
  const auto call = enter(*impl_, "full_fp32_parameter", name);
  const auto part = part_of(found);
  return gather(*impl_, found, part, own_master(found, part));
}

at::Tensor EngineBase::full_gradient(const std::string& name) {
  at::NoGradGuard no_grad;
  const Found found = find(*impl_, name);
  const auto call = enter(*impl_, "full_gradient", name);
  const auto part = part_of(found);
  return gather(*impl_, found, part, own_gradient(*impl_, found, part));
}

at::Tensor EngineBase::full_optimizer_state(const std::string& name, const std::string& state) {
  at::NoGradGuard no_grad;
  const Found found = find(*impl_, name);
  const size_t index = state_index(*impl_, found, state);
  const auto call = enter(*impl_, "full_optimizer_state", name);
  const auto part = part_of(found);
  return gather(*impl_, found, part, found.range->states[index].get(part.own, part.numel));
}

void EngineBase::set_full_fp32_parameter(const std::string& name, const at::Tensor& value) {
  at::NoGradGuard no_grad;
  const Found found = find(*impl_, name);
  if (impl_->reducer && impl_->progress.is_whole()) impl_->audit();
  const auto call = enter(*impl_, "set_full_fp32_parameter", name);
  const at::Tensor flat = agreed_value(*impl_, found, value, found.range->master_dtype);
  Range& range = *found.range;
  const auto part = part_of(found);
  if (part.numel > 0) {
    range.set_master(place_of(part), flat.narrow(0, part.begin, part.numel));
    if (range.is_gathered_on_demand && range.has_master_copy())
      range.set_param(place_of(part), flat.narrow(0, part.begin, part.numel));
  }
  if (impl_->residency) impl_->residency->forget();
  if (range.is_gathered_on_demand)
    impl_->all_gather_persistent(range);
  else
    range.set_param({found.get().offset, found.get().offset, found.get().numel}, flat);
  if (impl_->reducer) impl_->record_parameters();
}

void EngineBase::set_full_gradient(const std::string& name, const at::Tensor& value) {
  at::NoGradGuard no_grad;
  const Found found = find(*impl_, name);
  const auto call = enter(*impl_, "set_full_gradient", name);
  require_gradient(*impl_, found);
  const auto& range = *found.range;
  const at::Tensor flat =
      agreed_value(*impl_, found, value, range.master_dtype).mul(impl_->scaler.scale() / impl_->reducer->mean_factor());
  const auto part = part_of(found);
  if (range.is_sharded()) {
    if (part.numel > 0) range.grad_of(place_of(part)).copy_(flat.narrow(0, part.begin, part.numel));
  } else {
    found.get().held.flatten().copy_(flat);
  }
}

void EngineBase::for_each_gradient(const std::function<void(const std::string& name, at::Tensor& gradient)>& body) {
  for (const std::string& name : parameter_names()) {
    at::Tensor gradient = full_gradient(name);
    body(name, gradient);
    set_full_gradient(name, gradient);
  }
}

void EngineBase::set_full_optimizer_state(const std::string& name, const std::string& state, const at::Tensor& value) {
  at::NoGradGuard no_grad;
  const Found found = find(*impl_, name);
  const size_t index = state_index(*impl_, found, state);
  const auto call = enter(*impl_, "set_full_optimizer_state", name);
  const at::Tensor flat = agreed_value(*impl_, found, value, found.range->states[index].dtype());
  const auto part = part_of(found);
  if (part.numel > 0) found.range->states[index].set(part.own, flat.narrow(0, part.begin, part.numel));
}

EngineBase::Local EngineBase::local_fp32_parameter(const std::string& name) const {
  at::NoGradGuard no_grad;
  const Found found = find(*impl_, name);
  const auto part = part_of(found);
  return part.numel > 0 ? Local{part.begin, own_master(found, part)} : Local{};
}

EngineBase::Local EngineBase::local_gradient(const std::string& name) const {
  at::NoGradGuard no_grad;
  const Found found = find(*impl_, name);
  const auto part = part_of(found);
  const at::Tensor gradient = own_gradient(*impl_, found, part);
  return part.numel > 0 ? Local{part.begin, gradient} : Local{};
}

EngineBase::Local EngineBase::local_optimizer_state(const std::string& name, const std::string& state) const {
  at::NoGradGuard no_grad;
  const Found found = find(*impl_, name);
  const size_t index = state_index(*impl_, found, state);
  const auto part = part_of(found);
  return part.numel > 0 ? Local{part.begin, found.range->states[index].get(part.own, part.numel)} : Local{};
}

}  // namespace gannet
