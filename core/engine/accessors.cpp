// The accessors to a parameter's master, gradient and optimizer states by the parameter's name.
// They read or write full tensors, or read this rank's part, wherever these are stored.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/view_as_real.h>
#include <torch/nn/module.h>

#include "base/format.h"
#include "base/text.h"
#include "control/world.h"
#include "engine/checkpoint/rank_states.h"
#include "engine/gate.h"
#include "engine/optimizer_reduction.h"
#include "params/broadcast.h"
#include "tensor/torch_errors.h"

namespace gannet {
namespace {

using FoundParameter = ParameterStore::FoundParameter;

// `is_whole`: the caller asks for the values of all ranks, not only for this rank's part.
size_t state_index(EngineBase::Impl& impl, const FoundParameter& found, const std::string& state, bool is_whole = true) {
  const auto& optimizer = impl.groups[found.range->group].optimizer;
  const bool differs = is_whole && ranks_differ(impl, found.range->group);
  const auto is_of_ranks = [&](const Optimizer::State& one) {
    return one.is_of_rank() || one.is_served() || (one.is_local() && differs);
  };
  std::vector<std::string> names;
  if (optimizer)
    for (size_t s = 0; s < optimizer->states().size(); ++s) {
      const Optimizer::State& one = optimizer->states()[s];
      if (one.name == state && is_of_ranks(one))
        throw Error(ErrorCode::kUnsupported,
                    formatted("state '{}' is other on every rank, or each has a part of it: it has no whole values", state),
                    "a checkpoint has it: docs/checkpoint.md, What is saved");
      if (one.name == state && one.extent == GANNET_STATE_PER_ELEMENT) return s;
      if (one.extent == GANNET_STATE_PER_ELEMENT && !is_of_ranks(one)) names.push_back(one.name);
    }
  throw Error(ErrorCode::kNotFound,
              formatted("the optimizer keeps no state '{}' of each element{}", state, did_you_mean(state, names)),
              names.empty() ? "it keeps none" : formatted("it keeps {}", join(names, ", ")));
}

void require_gradient(EngineBase::Impl& impl, const FoundParameter& found) {
  if (!impl.reducer || !impl.progress.has_backwarded() || (impl.comm->size() > 1 && !impl.reducer->is_reduced()))
    throw Error(ErrorCode::kOrder, formatted("there is no gradient of '{}' now", found.get().name),
                "ask between the last backward() of a step and its step()");
  impl.take_cleared_gradients();
  impl.reducer->wait();
}

// The gradient of a layer that forward created is accessible only after the layer has joined the
// engine.
void join_newcomers(EngineBase::Impl& impl) {
  if (impl.reducer && impl.progress.is_whole() && !impl.newcomers.is_empty()) impl.audit();
}

// Returns the factor by which an accessor multiplies the values in a gradient buffer.
double gradient_factor(const EngineBase::Impl& impl, const FoundParameter& found) {
  const Reducer& reducer = *impl.reducer;
  return (found.range->has_unreduced_gradients ? reducer.unreduced_factor() : reducer.mean_factor()) / impl.scaler.scale();
}

// The dtype in which the program sees gradients: that of the masters, or fp32 for 16-bit parameters
// without masters. Reading a gradient and writing it back therefore changes nothing.
at::ScalarType gradient_dtype(const FoundParameter& found) {
  return found.range->master_dtype == at::kBFloat16 ? at::kFloat : found.range->master_dtype;
}

// Returns this rank's part of the gradient, averaged (unless the optimizer averages it) and
// unscaled.
at::Tensor shard_gradient(EngineBase::Impl& impl, const FoundParameter& found) {
  require_gradient(impl, found);
  return impl.store.shard_gradient(found).to(gradient_dtype(found)).mul(gradient_factor(impl, found));
}

// Returns rank 0's value on every rank (for experts, the value of the first rank that holds them),
// flat, on the host.
at::Tensor agreed_value(EngineBase::Impl& impl, const FoundParameter& found, const at::Tensor& value, at::ScalarType dtype) {
  const at::Tensor real = value.defined() && value.is_complex() ? at::view_as_real(value.resolve_conj()) : value;
  if (!value.defined() || real.sizes() != at::IntArrayRef(found.get().shape))
    throw Error(ErrorCode::kArgument,
                formatted("a value for '{}' has shape {}, the parameter has {}", found.get().name,
                          value.defined() ? shape_text(value.sizes().vec()) : "undefined", shape_text(found.get().shape)));
  const at::Tensor flat = real.detach().to(impl.device, dtype, /*non_blocking=*/false, /*copy=*/true).contiguous().flatten();
  broadcast(found.range->ranks, flat);
  return flat.to(at::kCPU);
}

// The watch compares only ranks with the same parameters: pipeline stages access different ones.
control::Watch::Call enter(EngineBase::Impl& impl, const char* name, const std::string& parameter) {
  return control::Watch::Call(impl.process_group->world()->watch(), impl.watched_group(), name, impl.progress.global_steps,
                              parameter, control::Watch::Call::kTogether);
}

}  // namespace

std::vector<std::string> EngineBase::parameter_names() const { return impl_->store.names(); }

std::vector<std::string> EngineBase::optimizer_states() const {
  std::vector<std::string> names;
  if (!impl_->groups.empty() && impl_->groups[0].optimizer)
    for (const auto& state : impl_->groups[0].optimizer->states())
      if (state.extent == GANNET_STATE_PER_ELEMENT) names.push_back(state.name);
  return names;
}

at::Tensor EngineBase::full_fp32_parameter(const std::string& name) try {
  const Entered entered(*impl_, Call::kFullFp32Parameter);
  at::NoGradGuard no_grad;
  const FoundParameter found = impl_->store.find(name);
  if (impl_->reducer && impl_->progress.is_whole()) impl_->audit();
  const auto call = enter(*impl_, "full_fp32_parameter", name);
  if (const at::Tensor weights = weights_to_use(*impl_, *found.range, found.parameter); weights.defined())
    return Range::shaped(weights.flatten(), found.get());
  return impl_->store.gather(found, impl_->store.shard_master(found));
} catch (...) {
  rethrow_as_ours("full_fp32_parameter");
}

at::Tensor EngineBase::full_gradient(const std::string& name) try {
  const Entered entered(*impl_, Call::kFullGradient);
  at::NoGradGuard no_grad;
  join_newcomers(*impl_);
  const FoundParameter found = impl_->store.find(name);
  const auto call = enter(*impl_, "full_gradient", name);
  const at::Tensor gradient = shard_gradient(*impl_, found);
  if (found.range->has_unreduced_gradients) {
    impl_->comm->all_reduce(gradient.view({-1})).wait();
    gradient.div_(static_cast<double>(impl_->comm->size()));
  }
  return impl_->store.gather(found, gradient);
} catch (...) {
  rethrow_as_ours("full_gradient");
}

at::Tensor EngineBase::full_optimizer_state(const std::string& name, const std::string& state) try {
  const Entered entered(*impl_, Call::kFullOptimizerState);
  at::NoGradGuard no_grad;
  const FoundParameter found = impl_->store.find(name);
  const size_t index = state_index(*impl_, found, state);
  const auto call = enter(*impl_, "full_optimizer_state", name);
  return impl_->store.gather(found, impl_->store.shard_state(found, index));
} catch (...) {
  rethrow_as_ours("full_optimizer_state");
}

void EngineBase::set_full_fp32_parameter(const std::string& name, const at::Tensor& value) try {
  const Entered entered(*impl_, Call::kSetFullFp32Parameter);
  at::NoGradGuard no_grad;
  const FoundParameter found = impl_->store.find(name);
  if (impl_->reducer && impl_->progress.is_whole()) impl_->audit();
  refuse_write(*impl_, "set_full_fp32_parameter()", found.range->group, name);
  const auto call = enter(*impl_, "set_full_fp32_parameter", name);
  const at::Tensor flat = agreed_value(*impl_, found, value, found.range->master_dtype);
  impl_->store.set_master(found, flat);
  if (impl_->reducer) impl_->module_audit->record();
} catch (...) {
  rethrow_as_ours("set_full_fp32_parameter");
}

void EngineBase::set_full_gradient(const std::string& name, const at::Tensor& value) try {
  const Entered entered(*impl_, Call::kSetFullGradient);
  at::NoGradGuard no_grad;
  join_newcomers(*impl_);
  const FoundParameter found = impl_->store.find(name);
  const auto call = enter(*impl_, "set_full_gradient", name);
  require_gradient(*impl_, found);
  const at::Tensor flat = agreed_value(*impl_, found, value, gradient_dtype(found)).div(gradient_factor(*impl_, found));
  impl_->store.set_gradient(found, flat);
  impl_->reducer->count_as_come(*found.range, found.parameter);
} catch (...) {
  rethrow_as_ours("set_full_gradient");
}

void EngineBase::for_each_gradient(const std::function<void(const std::string& name, at::Tensor& gradient)>& body) {
  join_newcomers(*impl_);
  for (const std::string& name : parameter_names()) {
    at::Tensor gradient = full_gradient(name);
    body(name, gradient);
    set_full_gradient(name, gradient);
  }
}

void EngineBase::set_full_optimizer_state(const std::string& name, const std::string& state, const at::Tensor& value) try {
  const Entered entered(*impl_, Call::kSetFullOptimizerState);
  at::NoGradGuard no_grad;
  const FoundParameter found = impl_->store.find(name);
  const size_t index = state_index(*impl_, found, state);
  const auto call = enter(*impl_, "set_full_optimizer_state", name);
  const at::Tensor flat = agreed_value(*impl_, found, value, found.range->states[index].dtype());
  impl_->store.set_state(found, index, flat);
} catch (...) {
  rethrow_as_ours("set_full_optimizer_state");
}

EngineBase::Local EngineBase::local_fp32_parameter(const std::string& name) const {
  at::NoGradGuard no_grad;
  const FoundParameter found = impl_->store.find(name);
  const auto part = found.part();
  return part.numel > 0 ? Local{part.begin, impl_->store.shard_master(found)} : Local{};
}

EngineBase::Local EngineBase::local_gradient(const std::string& name) const try {
  at::NoGradGuard no_grad;
  const FoundParameter found = impl_->store.find(name);
  const auto part = found.part();
  if (found.range->has_unreduced_gradients)
    throw Error(
        ErrorCode::kUnsupported,
        formatted("no rank has a part of the average gradient of '{}' in this step: the optimizer averages what it sends", name),
        "full_gradient() averages it, on every rank");
  const at::Tensor gradient = shard_gradient(*impl_, found);
  return part.numel > 0 ? Local{part.begin, gradient} : Local{};
} catch (...) {
  rethrow_as_ours("local_gradient");
}

EngineBase::Local EngineBase::local_optimizer_state(const std::string& name, const std::string& state) const {
  at::NoGradGuard no_grad;
  const FoundParameter found = impl_->store.find(name);
  const size_t index = state_index(*impl_, found, state, /*is_whole=*/false);
  const auto part = found.part();
  return part.numel > 0 ? Local{part.begin, impl_->store.shard_state(found, index)} : Local{};
}

}  // namespace gannet
