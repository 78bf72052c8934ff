// DeepSpeed's form of a region: one node of the graph, whose backward runs the function again and
// then a nested backward.
#include <ATen/core/grad_mode.h>
#include <gannet/checkpointing.h>
#include <gannet/error.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "activation/boundary.h"
#include "activation/configuration.h"
#include "activation/here.h"
#include "activation/inputs.h"
#include "activation/surroundings.h"
#include "activation/trace.h"
#include "base/format.h"
#include "base/text.h"

namespace gannet::activation {
namespace {

using checkpointing::Options;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kOtherForm = "leave use_reentrant at false: that form serves it";

class ReentrantRegion : public torch::CustomClassHolder {
 public:
  ReentrantRegion(const Options& options, const variable_list& tensors, checkpointing::detail::AgainWithOutputs again)
      : options_(options),
        again_(std::move(again)),
        devices_(devices_of(tensors)),
        surroundings_(devices_, options.preserve_rng_state),
        inputs_(tensors) {}

  variable_list run(const checkpointing::detail::ForwardWithOutputs& forward, const variable_list& tensors) {
    count_region();
    RegionRecorder recorder(tensors);
    {
      const Boundary boundary(configuration_.get(), devices_, "forward", name());
      const RegionScope in_region;
      outputs_ = forward();
    }
    record_ = recorder.finish();
    if (options_.preserve_rng_state) surroundings_.keep_what_was_drawn_from(recorder.drawn_from());
    inputs_->keep(tensors, configuration_.get(), name());
    if (outputs_.empty()) checkpointing::detail::refuse_reentrant_without_result(options_);
    variable_list values;
    for (const at::Tensor* output : outputs_) {
      if (!output->defined())
        throw Error(ErrorCode::kUnsupported, formatted("{} with use_reentrant returns an undefined tensor", name()), kOtherForm);
      values.push_back(*output);
    }
    return values;
  }

  // Replaces the program's results with those that belong to the graph.
  void give(const variable_list& values) {
    for (size_t i = 0; i < values.size(); ++i) *outputs_[i] = values[i];
    outputs_.clear();
  }

  variable_list backward(const variable_list& gradients) {
    if (!torch::autograd::Engine::get_default_engine().is_checkpoint_valid())
      throw Error(ErrorCode::kUnsupported,
                  formatted("{} with use_reentrant has come into a backward that asks for the gradients of only some tensors "
                            "(autograd::grad, or backward with inputs): it would add to those of all others",
                            name()),
                  kOtherForm);
    if (at::GradMode::is_enabled())
      throw Error(
          ErrorCode::kUnsupported,
          formatted("{} with use_reentrant has come into a backward with create_graph: its gradients have no graph", name()),
          kOtherForm);
    const std::lock_guard lock(mutex_);  // one backward at a time
    if (!waiting_)
      throw Error(ErrorCode::kOrder,
                  formatted("a second backward has come to {}, and the first one did not retain the graph", name()),
                  "call the first one with retain_graph");
    const variable_list inputs = inputs_->again(name());
    record_.require_unchanged(name());
    variable_list outputs;
    {
      const at::AutoGradMode with_grad(true);
      const ConfigurationScope configuration(configuration_);
      const Boundary boundary(configuration_.get(), devices_, "recomputation", name());
      const SurroundingsScope surroundings(surroundings_);
      const RecordReplay replayed(record_);
      const RegionScope in_region;
      outputs = again_(inputs);
    }
    if (outputs.size() != gradients.size())
      throw Error(ErrorCode::kMismatch,
                  formatted("the recomputation of {} differs from its forward: it returned {} tensors, and the forward {}",
                            name(), outputs.size(), gradients.size()),
                  "let the function depend only on its arguments: train() and eval() as they were, no state of its own");
    variable_list roots, of_roots;
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i].defined() && outputs[i].requires_grad() && gradients[i].defined()) {
        roots.push_back(outputs[i]);
        of_roots.push_back(gradients[i]);
      }
    const bool is_last = !torch::autograd::get_current_graph_task_keep_graph();
    if (!roots.empty()) torch::autograd::backward(roots, of_roots);
    variable_list of_inputs;
    std::vector<const void*> given;
    for (const at::Tensor& input : inputs) {
      // A tensor that is passed twice gets its gradient only once.
      const bool is_first = std::find(given.begin(), given.end(), input.unsafeGetTensorImpl()) == given.end();
      given.push_back(input.unsafeGetTensorImpl());
      if (input.defined()) of_inputs.push_back(is_first && input.requires_grad() ? input.grad() : at::Tensor());
    }
    if (is_last) forget();
    return of_inputs;
  }

  std::string name() const {
    return options_.name.empty() ? "a region of activation checkpointing"
                                 : formatted("the region '{}'", printable(options_.name));
  }

 private:
  // The graph may outlive the data that it needed.
  void forget() {
    again_ = {};
    inputs_.reset();
    record_ = {};
    waiting_.reset();
  }

  const Options options_;
  checkpointing::detail::AgainWithOutputs again_;
  const std::shared_ptr<const Configuration> configuration_ = in_force();  // null: nothing is configured
  std::optional<WaitingRegion> waiting_{std::in_place};                    // empty: the kept data was dropped
  const std::vector<at::Device> devices_;
  Surroundings surroundings_;
  RegionRecord record_;
  std::optional<Inputs> inputs_;
  std::vector<at::Tensor*> outputs_;  // tensors in the program's result; set only during the forward
  std::mutex mutex_;
};

struct Node : torch::autograd::Function<Node> {
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<ReentrantRegion>& region,
                               at::TensorList /*inputs of the node*/, const variable_list* tensors,
                               const checkpointing::detail::ForwardWithOutputs& run) {
    context->saved_data["region"] = c10::IValue::make_capsule(region);
    context->set_materialize_grads(false);
    return region->run(run, *tensors);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto region = c10::static_intrusive_pointer_cast<ReentrantRegion>(context->saved_data["region"].toCapsule());
    // One gradient for each argument of forward(); arguments that are not tensors have none.
    variable_list all = {at::Tensor()};
    for (at::Tensor& gradient : region->backward(gradients)) all.push_back(std::move(gradient));
    all.resize(all.size() + 2);
    return all;
  }
};

}  // namespace
}  // namespace gannet::activation

namespace gannet::checkpointing::detail {

void refuse_reentrant_without_result(const Options& options) {
  throw Error(ErrorCode::kUnsupported,
              formatted("a region with use_reentrant{} returns no tensor: backward could not come to it",
                        options.name.empty() ? "" : formatted(" ('{}')", printable(options.name))),
              "return what it computes, or leave use_reentrant at false");
}

void run_reentrant(const Options& options, const std::vector<at::Tensor>& tensors, const ForwardWithOutputs& forward,
                   AgainWithOutputs again) {
  const auto region = c10::make_intrusive<activation::ReentrantRegion>(options, tensors, std::move(again));
  if (std::none_of(tensors.begin(), tensors.end(), [](const at::Tensor& one) { return one.defined() && one.requires_grad(); }))
    throw Error(
        ErrorCode::kUnsupported,
        formatted("no input of {} requires a gradient, and with use_reentrant its parameters would get none", region->name()),
        activation::kOtherForm);
  std::vector<at::Tensor> defined;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined()) defined.push_back(tensor);
  const auto values = activation::Node::apply(region, at::TensorList(defined), &tensors, forward);
  region->give(values);
}

}  // namespace gannet::checkpointing::detail
