#include "update/torch_types.h"

#include <gannet/abi.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <tuple>
#include <type_traits>
#include <typeinfo>

namespace gannet {
namespace {

using torch::optim::Adagrad, torch::optim::AdagradOptions, torch::optim::AdagradParamState;
using torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState;
using torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState;
using torch::optim::OptimizerOptions, torch::optim::OptimizerParamGroup, torch::optim::OptimizerParamState;
using torch::optim::RMSprop, torch::optim::RMSpropOptions, torch::optim::RMSpropParamState;
using torch::optim::SGD, torch::optim::SGDOptions, torch::optim::SGDParamState;
using TorchBase = torch::optim::Optimizer;  // `Optimizer` is Gannet's

// kMember is the accessor that LibTorch's TORCH_ARG generates for a member.
template <class Options, double& (Options::*kMember)() noexcept>
TorchType::Number number(const char* name, uint32_t role = GANNET_ROLE_NONE) {
  return {name, role, [](OptimizerOptions& options) -> double& { return (static_cast<Options&>(options).*kMember)(); }};
}

template <class Options, size_t kIndex>
TorchType::Number beta(const char* name, uint32_t role) {
  return {name, role,
          [](OptimizerOptions& options) -> double& { return std::get<kIndex>(static_cast<Options&>(options).betas()); }};
}

bool always(OptimizerOptions&) { return true; }

template <class ParamState, at::Tensor& (ParamState::*kMember)() noexcept>
TorchType::State state(const char* name, bool (*is_kept)(OptimizerOptions&) = always) {
  return {name, [](OptimizerParamState& states) -> at::Tensor& { return (static_cast<ParamState&>(states).*kMember)(); },
          is_kept};
}

template <class Class, class Options, class ParamState>
TorchType type_called(const char* name) {
  TorchType type{};
  type.name = name;
  type.first_value = [](OptimizerOptions&) { return 0.0; };
  type.switches = [](OptimizerOptions&) { return std::string(); };
  type.make_state = []() -> std::unique_ptr<OptimizerParamState> { return std::make_unique<ParamState>(); };
  type.make_optimizer = []() -> std::unique_ptr<TorchBase> {
    const std::vector<OptimizerParamGroup> empty = {OptimizerParamGroup(std::vector<at::Tensor>())};
    return std::make_unique<Class>(empty, Options(0.1));
  };
  if constexpr (!std::is_same_v<Class, SGD>)
    type.step = [](OptimizerParamState& states) -> int64_t& { return static_cast<ParamState&>(states).step(); };
  return type;
}

// Describes Adam or AdamW, which have the same members and differ in their weight decay.
template <class Class, class Options, class ParamState>
TorchType adam(const char* name) {
  TorchType type = type_called<Class, Options, ParamState>(name);
  type.numbers = {number<Options, &Options::lr>("lr", GANNET_ROLE_LEARNING_RATE), beta<Options, 0>("betas[0]", GANNET_ROLE_BETA1),
                  beta<Options, 1>("betas[1]", GANNET_ROLE_BETA2), number<Options, &Options::eps>("eps"),
                  number<Options, &Options::weight_decay>("weight_decay", GANNET_ROLE_WEIGHT_DECAY)};
  type.states = {state<ParamState, &ParamState::exp_avg>("exp_avg"), state<ParamState, &ParamState::exp_avg_sq>("exp_avg_sq"),
                 state<ParamState, &ParamState::max_exp_avg_sq>(
                     "max_exp_avg_sq", [](OptimizerOptions& options) { return static_cast<Options&>(options).amsgrad(); })};
  return type;
}

TorchType sgd() {
  TorchType type = type_called<SGD, SGDOptions, SGDParamState>("torch::optim::SGD");
  type.numbers = {number<SGDOptions, &SGDOptions::lr>("lr", GANNET_ROLE_LEARNING_RATE),
                  number<SGDOptions, &SGDOptions::momentum>("momentum", GANNET_ROLE_MOMENTUM),
                  number<SGDOptions, &SGDOptions::dampening>("dampening"),
                  number<SGDOptions, &SGDOptions::weight_decay>("weight_decay", GANNET_ROLE_WEIGHT_DECAY)};
  type.states = {state<SGDParamState, &SGDParamState::momentum_buffer>(
      "momentum_buffer", [](OptimizerOptions& options) { return static_cast<SGDOptions&>(options).momentum() != 0; })};
  type.first_step_makes_states = true;
  type.switches = [](OptimizerOptions& options) {
    return std::string(static_cast<SGDOptions&>(options).nesterov() ? "nesterov" : "");
  };
  return type;
}

TorchType adagrad() {
  TorchType type = type_called<Adagrad, AdagradOptions, AdagradParamState>("torch::optim::Adagrad");
  type.numbers = {number<AdagradOptions, &AdagradOptions::lr>("lr", GANNET_ROLE_LEARNING_RATE),
                  number<AdagradOptions, &AdagradOptions::lr_decay>("lr_decay"),
                  number<AdagradOptions, &AdagradOptions::weight_decay>("weight_decay", GANNET_ROLE_WEIGHT_DECAY),
                  number<AdagradOptions, &AdagradOptions::eps>("eps")};
  type.states = {state<AdagradParamState, &AdagradParamState::sum>("sum")};
  type.first_value = [](OptimizerOptions& options) { return static_cast<AdagradOptions&>(options).initial_accumulator_value(); };
  type.begins_with_states = true;
  return type;
}

TorchType rmsprop() {
  TorchType type = type_called<RMSprop, RMSpropOptions, RMSpropParamState>("torch::optim::RMSprop");
  type.numbers = {number<RMSpropOptions, &RMSpropOptions::lr>("lr", GANNET_ROLE_LEARNING_RATE),
                  number<RMSpropOptions, &RMSpropOptions::alpha>("alpha"), number<RMSpropOptions, &RMSpropOptions::eps>("eps"),
                  number<RMSpropOptions, &RMSpropOptions::weight_decay>("weight_decay", GANNET_ROLE_WEIGHT_DECAY),
                  number<RMSpropOptions, &RMSpropOptions::momentum>("momentum", GANNET_ROLE_MOMENTUM)};
  type.states = {
      state<RMSpropParamState, &RMSpropParamState::square_avg>("square_avg"),
      state<RMSpropParamState, &RMSpropParamState::momentum_buffer>(
          "momentum_buffer", [](OptimizerOptions& options) { return static_cast<RMSpropOptions&>(options).momentum() > 0; }),
      state<RMSpropParamState, &RMSpropParamState::grad_avg>(
          "grad_avg", [](OptimizerOptions& options) { return static_cast<RMSpropOptions&>(options).centered(); })};
  return type;
}

bool has_complex_parameters(const TorchBase& optimizer) {
  for (const auto& group : optimizer.param_groups())
    for (const auto& tensor : group.params())
      if (tensor.is_complex()) return true;
  return false;
}

}  // namespace

const TorchType* torch_type_of(const torch::optim::Optimizer& optimizer) {
  static const std::pair<const std::type_info&, TorchType> kTypes[] = {
      {typeid(SGD), sgd()},
      {typeid(Adagrad), adagrad()},
      {typeid(RMSprop), rmsprop()},
      {typeid(Adam), adam<Adam, AdamOptions, AdamParamState>("torch::optim::Adam")},
      {typeid(AdamW), adam<AdamW, AdamWOptions, AdamWParamState>("torch::optim::AdamW")}};
  for (const auto& [of, type] : kTypes) {
    if (typeid(optimizer) != of) continue;
    // Flat arrays hold real numbers. SGD is linear, so it may treat the parts of a complex number
    // separately. The other rules square and divide.
    return of != typeid(SGD) && has_complex_parameters(optimizer) ? nullptr : &type;
  }
  return nullptr;
}

}  // namespace gannet
