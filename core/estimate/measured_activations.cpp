#include "estimate/measured_activations.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gannet/error.h>
#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <unordered_set>

#include "activation/cheap_operators.h"
#include "activation/here.h"
#include "activation/recomputing.h"
#include "activation/saved_tensors.h"
#include "activation/selective.h"

namespace gannet {
namespace {

using activation::KeeperScope;
using activation::RecomputationPlanner;
using activation::SavedBytes;

// Counts saved tensors and holds none of them: the graph is never run.
class SavedTensorCounter : public activation::Keeper {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override { return std::make_unique<Hooks>(); }
  bool drops_all() const override { return false; }  // nested regions are still regions

 private:
  class Hooks : public torch::autograd::SavedVariableHooks {
   public:
    void call_pack_hook(const at::Tensor& tensor) override { SavedBytes::note(tensor); }
    at::Tensor call_unpack_hook() override {
      throw Error(ErrorCode::kOrder, "the forward of an estimate has no backward", "return the loss, and call no backward on it");
    }
  };
};

void require_graph(const at::Tensor& loss) {
  if (loss.defined() && loss.requires_grad()) return;
  throw Error(ErrorCode::kArgument,
              "gannet::estimate: the loss that its `forward` returned does not depend on a trained parameter",
              "run the module's forward in it, outside NoGradGuard, and return the loss");
}

}  // namespace

activation::ActivationMeasurement measure_activations(const torch::nn::Module& module, const std::function<at::Tensor()>& forward,
                                                      const std::vector<std::string>& recompute) {
  activation::install_saved_tensor_hooks();
  const std::vector<at::Tensor> parameters = module.parameters();
  // With a memory limit, every layer starts as a region and is measured.
  const auto layers = std::make_shared<RecomputationPlanner>(
      activation::RecomputeSettings{.is_on = true, .memory_limit = 0, .interval = {}, .number_checkpoints = {}});
  layers->own(parameters);
  const std::unordered_set<const c10::StorageImpl*> storages = layers->parameter_storages();
  const at::AutoGradMode with_grad(true);
  activation::ActivationMeasurement kept;
  {
    const RecomputationPlanner::Forward here(layers);
    const SavedBytes rest;
    SavedTensorCounter counting;
    const KeeperScope keeping(&counting);
    require_graph(forward());
    kept.rest_bytes = rest.without(storages);
    kept.rest_largest_bytes = rest.largest_without(storages);
  }
  kept.layers = layers->measured_layers();
  if (recompute.empty()) return kept;
  layers->turn(false);
  const activation::CheapOperators operators(recompute);
  const SavedBytes saved;
  at::Tensor loss;  // holds the graph, and so the tensors that it keeps
  {
    const activation::SelectiveRecomputation selective(operators);
    loss = forward();
  }
  require_graph(loss);
  kept.selective_bytes = saved.alive_without(storages);
  return kept;
}

}  // namespace gannet
