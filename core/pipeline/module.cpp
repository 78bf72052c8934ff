#include <c10/util/Type.h>
#include <gannet/error.h>
#include <gannet/lazy.h>
#include <gannet/pipe.h>
#include <torch/nn/modules/container/sequential.h>

#include <set>

#include "base/format.h"
#include "base/text.h"
#include "params/other_stages.h"
#include "pipeline/layer_facts.h"

namespace gannet {

torch::nn::Module& detail::LazyModule::require_built() const {
  if (!built_)
    throw Error(ErrorCode::kOrder,
                formatted("a Lazy module of the class {} is not built on this rank", c10::demangle(type_.name())),
                "give its layers to a pipe::Module: gannet::initialize builds it on the ranks of its stage");
  return *built_;
}

}  // namespace gannet

namespace gannet::pipe {

at::Tensor Loss::operator()(const Wire& outputs, const Wire& labels) const {
  Wire all = outputs;
  all.insert(all.end(), labels.begin(), labels.end());
  if (!layer_->takes().has(all.size()))
    throw Error(ErrorCode::kArgument,
                formatted("the loss takes {}: the last layer gave {}, and the micro-batch has {} labels",
                          layer_->takes().to_string(), outputs.size(), labels.size()),
                "let loss_fn, or the model's pipeline_loss, take the last layer's results first, and then the labels");
  const Wire results = (*layer_)(all);
  return results.size() == 1 ? results[0] : at::Tensor();
}

ModuleImpl::ModuleImpl(std::vector<Layer> layers, Options options) : ModuleImpl(nullptr, std::move(layers), std::move(options)) {}

ModuleImpl::ModuleImpl(const std::shared_ptr<torch::nn::SequentialImpl>& model, Options options)
    : ModuleImpl(model, layers_of(model), std::move(options)) {}

ModuleImpl::ModuleImpl(std::shared_ptr<torch::nn::Module> model, std::vector<Layer> layers, Options options)
    : torch::nn::Module("pipe::Module"), model_(std::move(model)), layers_(std::move(layers)), options_(std::move(options)) {
  if (layers_.empty())
    throw Error(ErrorCode::kConfig, "a pipe::Module was given no layers",
                "give it the model's layers, in order (gannet/layers.h)");
  if (options_.num_stages && options_.topology && options_.topology->get_dim("pipe") != *options_.num_stages)
    throw Error(ErrorCode::kConfig,
                formatted("pipe::Options asks for {} stages, and its topology has {}", *options_.num_stages,
                          options_.topology->get_dim("pipe")),
                "give one of them");
  if (options_.num_stages && *options_.num_stages == 0)
    throw Error(ErrorCode::kConfig, "pipe::Options asks for 0 stages", "1 stage is the whole model on every rank");
  std::set<std::string> names;
  for (const Layer& layer : layers_)
    for (const auto& module : layer.modules())
      if (model_ && dynamic_cast<const gannet::detail::LazyModule*>(module.get()))
        throw Error(ErrorCode::kConfig,
                    formatted("layer '{}' has a Lazy module, which is not in the model", printable(layer.name())),
                    "give the pipe::Module only the list of layers, or build the module in the model's constructor");
  for (const Layer& layer : layers_)
    for (const auto& module : layer.modules())
      for (const auto& parameter : module->named_parameters())
        refuse_of_other_stages(formatted("{}.{}", layer.name(), parameter.key()), parameter.value());
  for (const Layer& layer : layers_)
    if (!names.insert(layer.name()).second)
      throw Error(ErrorCode::kConfig, formatted("two layers of a pipe::Module have the name '{}'", printable(layer.name())),
                  "name each layer as its module is named in the whole model");
}

ModuleImpl::~ModuleImpl() = default;

void ModuleImpl::visit_modules(const std::function<void(const std::string&, const torch::nn::Module&)>& visit) const {
  if (!bounds_.empty())
    throw Error(ErrorCode::kOrder, "visit_modules() after initialize, which has divided the layers among the stages",
                "call it before, or walk the modules of this stage: named_modules()");
  if (!model_) return pipeline::visit_modules(layers_, visit);
  for (const auto& entry : model_->named_modules()) visit(entry.key(), *entry.value());
}

void ModuleImpl::train(bool on) {
  torch::nn::Module::train(on);
  if (model_) model_->train(on);
}

}  // namespace gannet::pipe
