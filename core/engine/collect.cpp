// Collects a module's parameters into groups and the store, and moves the whole module to the
// device.
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <unordered_map>
#include <unordered_set>

#include "base/format.h"
#include "engine/construction.h"
#include "engine/impl.h"
#include "engine/ties.h"
#include "params/broadcast.h"
#include "params/interception.h"
#include "params/other_stages.h"
#include "tensor/move_leaf.h"

namespace gannet {
namespace {

// Groups parameters by name patterns. A tied parameter has several names; a pipeline stage has some
// of the model's names.
std::vector<ParameterGroup> groups_by_name(const EngineBase::Impl& impl) {
  const GroupRules& rules = impl.group_rules;
  std::vector<at::Tensor> tensors;
  GroupRules::Names names;
  std::unordered_map<const void*, size_t> places;
  for (const auto& entry : impl.module->named_parameters()) {
    const auto [place, is_new] = places.emplace(entry.value().unsafeGetTensorImpl(), tensors.size());
    if (is_new) {
      tensors.push_back(entry.value());
      names.emplace_back();
    }
    names[place->second].push_back(entry.key());
  }
  std::vector<double> reaches = rules.reaches(names);
  if (impl.mesh->has_pipe_stages()) impl.world_group->all_reduce(reaches.data(), reaches.size(), GANNET_MAX);
  rules.require_reach(reaches, names);
  std::vector<ParameterGroup> groups(rules.rules().size());
  for (size_t g = 0; g < groups.size(); ++g) groups[g].name = rules.rules()[g].name;
  for (size_t p = 0; p < tensors.size(); ++p) groups[rules.group_of(names[p])].parameters.push_back(tensors[p]);
  return groups;
}

std::vector<ParameterGroup> groups_of(const EngineBase::Impl& impl, const EngineOptions& options) {
  if (options.optimizer) {  // the program's own optimizer determines which parameters it steps
    std::vector<ParameterGroup> groups;
    for (auto& group : options.optimizer->param_groups()) groups.push_back({group.params(), {}, ""});
    return groups;
  }
  if (impl.group_rules.are_by_name()) return groups_by_name(impl);
  if (!options.model_parameters.empty()) return options.model_parameters;
  ParameterGroup all;
  for (auto& parameter : impl.module->parameters()) all.parameters.push_back(parameter);
  return {std::move(all)};
}

}  // namespace

void collect_parameters(EngineBase::Impl& impl, const EngineOptions& options) {
  std::unordered_map<const void*, std::string> names;
  for (const auto& entry : impl.module->named_parameters()) {
    refuse_of_other_stages(entry.key(), entry.value());
    names.emplace(entry.value().unsafeGetTensorImpl(), entry.key());
  }
  if (names.empty())
    throw Error(ErrorCode::kArgument, "the model has no parameters",
                "register them with register_parameter or register_module; a plain member is not seen by LibTorch");

  std::unordered_map<const void*, size_t> group_of;
  const auto is_trained = [&](const void* identity) { return group_of.contains(identity); };
  if (options.inference) return impl.store.add_frozen(*impl.module, is_trained);
  impl.module_audit->set_groups_are_given(!impl.group_rules.are_by_name() &&
                                          (options.optimizer || !options.model_parameters.empty()));
  for (auto& given : groups_of(impl, options)) {
    const size_t index = impl.groups.size();
    Group& group = impl.groups.emplace_back();
    group.name = given.name.empty() ? formatted("group {}", index) : given.name;
    for (auto& tensor : given.parameters) {
      const void* identity = tensor.unsafeGetTensorImpl();
      const auto known = names.find(identity);
      const std::string name = known != names.end() ? known->second : formatted("{}[{}]", group.name, group.parameters.size());
      impl.module_audit->know(identity, index);
      if (!tensor.requires_grad()) continue;
      const TrainedParameter parameter = ParameterStore::admit(name, tensor);
      if (const auto [place, is_new] = group_of.emplace(identity, index); !is_new) {
        if (place->second != index)
          throw Error(ErrorCode::kArgument,
                      formatted("parameter '{}' is in two parameter groups: {} and {}", name, impl.groups[place->second].name,
                                group.name),
                      "give each parameter to one group");
        continue;  // a tied parameter, registered under two names
      }
      group.parameters.push_back(tensor);
      if (tensor.numel() > 0) impl.store.add(index, parameter);
    }
  }
  impl.store.add_frozen(*impl.module, is_trained);
  if (impl.store.ranges().empty())
    throw Error(ErrorCode::kArgument,
                formatted("none of the model's {} parameters requires a gradient, so there is nothing to train", names.size()),
                "call requires_grad_(true) on those to train");
}

// Gradients of parameters that are updated on the host are kept in host memory, where the optimizer
// reads them.
ParameterStore::GradientMemory gradient_memory(const EngineBase::Impl& impl) {
  if (!impl.host_gradients) return nullptr;
  return [&impl](int64_t numel, at::ScalarType dtype) { return impl.host_gradients->allocate(numel, dtype); };
}

void move_module(EngineBase::Impl& impl) {
  at::NoGradGuard no_grad;
  const zero::Interception armed;  // parameters built under zero::Init are gathered as they are read
  if (impl.updates_on_host() && impl.settings().zero.stage >= 2 && !impl.groups.empty() && impl.groups[0].optimizer) {
    impl.host_gradients = std::make_unique<HostGradients>(*impl.accelerator, impl.device_index(),
                                                          2 * impl.store.bucket_numel() * int64_t{sizeof(float)},
                                                          [&impl] { return impl.current_stream(); });
    impl.updater.set_gradients_on_host(true);
  }
  if (impl.ties) impl.ties->share_first_values(impl);
  impl.store.place(gradient_memory(impl));
  std::unordered_set<const void*> placed;
  for (const auto& [name, tensor] : impl.store.owned()) placed.insert(tensor.unsafeGetTensorImpl());

  // Untrained tensors follow: frozen parameters take the training dtype, and buffers keep their own
  // unless buffer_dtype is set.
  for (auto& parameter : impl.module->parameters())
    if (!placed.count(parameter.unsafeGetTensorImpl())) impl.store.place_untrained(parameter);
  for (auto& buffer : impl.module->buffers()) {
    const bool cast = impl.settings().buffer_dtype && buffer.is_floating_point();
    move_leaf(buffer, buffer.to(impl.device, cast ? scalar_type(*impl.settings().buffer_dtype) : buffer.scalar_type()));
  }
  // Every rank starts from rank 0's values (for experts, those of the first rank that holds them),
  // including buffers.
  for (auto& parameter : impl.module->parameters())
    if (!placed.count(parameter.unsafeGetTensorImpl())) broadcast(impl.ranks_of(split_of(parameter).get()), parameter.detach());
  for (auto& buffer : impl.module->buffers()) broadcast(impl, buffer);
}

}  // namespace gannet
