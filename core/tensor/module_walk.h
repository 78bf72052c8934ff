// Visits the parameters of a module in the order of Module::parameters(), but without making
// copies, because an audit visits the parameters in every forward.
//
//   for_each_parameter(module, [](const at::Tensor& parameter) { ... });   // tied parameters are visited once per registration
//
// LibTorch's own accessors build a dictionary of copies and names on each call. The members that
// this header reads are private but have been the same since 1.5. An explicit instantiation may
// name private members (the C++ standard, [temp.spec]/6).
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

namespace gannet {
namespace module_members {

using Parameters = torch::OrderedDict<std::string, at::Tensor> torch::nn::Module::*;
using Children = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>> torch::nn::Module::*;
Parameters parameters();
Children children();

template <Parameters kParameters, Children kChildren>
struct MemberAccess {
  friend Parameters parameters() { return kParameters; }
  friend Children children() { return kChildren; }
};
template struct MemberAccess<&torch::nn::Module::parameters_, &torch::nn::Module::children_>;

}  // namespace module_members

template <class Body>
void for_each_parameter(torch::nn::Module& module, const Body& body) {
  for (const auto& entry : module.*module_members::parameters()) body(entry.value());
  for (const auto& entry : module.*module_members::children()) for_each_parameter(*entry.value(), body);
}

}  // namespace gannet
