#include "update/user_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <gannet/error.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <unordered_map>

#include "base/format.h"
#include "base/text.h"
#include "update/updater.h"

namespace gannet {

namespace {

// Returns the tensors that the program's optimizer holds: the parameters themselves, or their
// masters.
std::vector<at::Tensor> masters_of(const Range& range) {
  std::vector<at::Tensor> masters;
  for (const auto& parameter : range.parameters) masters.push_back(range.whole_master(parameter));
  return masters;
}

[[noreturn]] void refuse_closure(const std::string& who) {
  throw Error(ErrorCode::kUnsupported,
              formatted("{} evaluates the loss again inside step(), through a closure: the engine's forward, backward and step "
                        "are separate calls",
                        who),
              "name an optimizer in the config, or pass a torch::optim::Optimizer whose step() needs no closure, such as AdamW");
}

}  // namespace

UserOptimizer::UserOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer) : optimizer_(std::move(optimizer)) {
  if (dynamic_cast<const torch::optim::LBFGS*>(optimizer_.get())) refuse_closure("torch::optim::LBFGS");
}

void UserOptimizer::adopt(std::deque<Range>& ranges, std::vector<Group>& groups) {
  std::unordered_map<const void*, at::Tensor> master_of;
  for (auto& range : ranges) {
    if (!range.has_master_copy()) continue;
    auto masters = masters_of(range);
    for (size_t p = 0; p < masters.size(); ++p) master_of.emplace(range.parameters[p].tensor.unsafeGetTensorImpl(), masters[p]);
  }
  for (auto& group : optimizer_->param_groups())
    for (auto& tensor : group.params())
      if (const auto found = master_of.find(tensor.unsafeGetTensorImpl()); found != master_of.end()) tensor = found->second;
  lr_seen_.resize(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    if (!groups[g].hyper_names.empty()) continue;  // called again because parameters have joined
    groups[g].hyper_names = {"lr"};
    groups[g].hyper_roles = {GANNET_ROLE_LEARNING_RATE};
    groups[g].hyper = {optimizer_->param_groups()[g].options().get_lr()};
    lr_seen_[g] = groups[g].hyper[0];
    groups[g].base[GANNET_ROLE_LEARNING_RATE] = groups[g].hyper[0];
  }
}

// Carries the states over to the parameters: LibTorch stores states by tensor address.
void UserOptimizer::give_back(const std::deque<Range>& ranges) noexcept try {
  std::unordered_map<const void*, at::Tensor> parameter_of;
  for (const auto& range : ranges)
    if (range.has_master_copy())
      for (const auto& parameter : range.parameters)
        parameter_of.emplace(range.whole_master(parameter).data_ptr(), parameter.tensor);
  auto& states = optimizer_->state();
  for (auto& group : optimizer_->param_groups())
    for (auto& tensor : group.params()) {
      const auto found = parameter_of.find(tensor.data_ptr());
      if (found == parameter_of.end()) continue;
      if (const auto state = states.find(tensor.unsafeGetTensorImpl()); state != states.end()) {
        auto kept = std::move(state->second);
        states.erase(state);
        states[found->second.unsafeGetTensorImpl()] = std::move(kept);
      }
      tensor = found->second;
    }
} catch (const std::exception&) {  // an optimizer without states starts from scratch
}

void UserOptimizer::take_rates(std::vector<Group>& groups) {
  for (size_t g = 0; g < groups.size(); ++g) lr_seen_[g] = groups[g].hyper[0] = optimizer_->param_groups()[g].options().get_lr();
}

void UserOptimizer::update(double grad_scale, std::deque<Range>& ranges, std::vector<Group>& groups, const Reducer& reducer,
                           uint32_t ranks) {
  // The rate may have been changed in the engine, by a schedule or the program, or in the program's
  // object. A change in the engine wins.
  for (size_t g = 0; g < groups.size(); ++g) {
    auto& options = optimizer_->param_groups()[g].options();
    if (groups[g].hyper[0] != lr_seen_[g]) options.set_lr(groups[g].hyper[0]);
    lr_seen_[g] = groups[g].hyper[0] = options.get_lr();
  }
  std::unordered_map<const void*, at::Tensor> gradient_of;
  for (auto& range : ranges) {
    for (size_t p = 0; p < range.parameters.size(); ++p) {
      auto& parameter = range.parameters[p];
      if (is_skipped(range, p, reducer)) continue;
      // Converts before scaling: small values of a scaled fp16 gradient would be lost in fp16.
      at::Tensor gradient = parameter.held.to(range.master_dtype);
      if (grad_scale != 1.0) gradient.mul_(grad_scale);
      if (parameter.is_complex) gradient = Range::shaped(gradient.flatten(), parameter);
      gradient_of.emplace(range.whole_master(parameter).data_ptr(), gradient);
    }
  }
  for (auto& group : optimizer_->param_groups())
    for (auto& tensor : group.params()) {
      if (const auto found = gradient_of.find(tensor.data_ptr()); found != gradient_of.end())
        tensor.mutable_grad() = found->second;
      else if (tensor.grad().defined() && ranks > 1)
        throw Error(ErrorCode::kOrder,
                    formatted("the program's optimizer holds a tensor of shape {} that this engine does not train and that has a "
                              "gradient of this rank alone: ranks would differ",
                              shape_text(tensor.sizes().vec())),
                    "register it in the module, or take it out of the optimizer");
    }
  try {
    at::AutoGradMode with_grad(true);  // as in the program's own call
    optimizer_->step();
  } catch (const std::bad_function_call&) {
    refuse_closure("the program's own optimizer");
  } catch (const c10::Error& error) {
    if (std::string(error.what_without_backtrace()).find("closure") == std::string::npos) throw;
    refuse_closure("the program's own optimizer");
  }
  for (auto& group : optimizer_->param_groups())
    for (auto& tensor : group.params()) tensor.mutable_grad().reset();
  for (auto& range : ranges)
    if (range.has_master_copy()) range.param.here().copy_(range.master.here());
}

}  // namespace gannet
