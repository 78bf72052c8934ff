#include "engine/recomputation.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gannet/layers.h>
#include <gannet/log.h>

#include <algorithm>

#include "activation/recomputing.h"
#include "base/format.h"

namespace gannet {
namespace {

// Chooses the same layers on all ranks: at stage 3, recomputation gathers parameters, and ranks
// that recompute different layers would wait for each other.
void choose(EngineBase::Impl& impl, const std::string& lists) {
  HostGroup& ranks = impl.watched_group();
  const std::vector<std::string> all = ranks.gather_texts(lists);
  if (const auto other = std::find_if(all.begin(), all.end(), [&](const std::string& text) { return text != lists; });
      other != all.end())
    throw Error(ErrorCode::kMismatch,
                formatted("rank {} ran other layers in run_layers than rank {}: memory_limit cannot choose among them",
                          ranks.ranks()[static_cast<size_t>(other - all.begin())], ranks.ranks()[ranks.rank()]),
                "let every rank run the same layers, or give an interval in place of memory_limit");
  std::vector<double> measured = impl.activations.layers->measured();
  ranks.all_reduce(measured.data(), measured.size(), GANNET_MAX);
  const std::string choice = impl.activations.layers->choose(measured);
  if (impl.is_first()) log_info(formatted("activation checkpointing: {}", choice));
}

}  // namespace

std::shared_ptr<activation::RecomputationPlanner> recomputing_of(const EngineBase::Impl& impl) {
  const config::ActivationCheckpointing& section = impl.settings().activation_checkpointing;
  activation::RecomputeSettings settings{
      .memory_limit = section.memory_limit, .interval = section.interval, .number_checkpoints = section.number_checkpoints};
  // A setting for where inputs of regions are kept also turns regions on.
  settings.is_on = section.memory_limit || section.interval || section.number_checkpoints || section.partition_activations ||
                   section.cpu_checkpointing;
  std::function<void()> wait;
  if (!impl.computes_on_host())
    wait = [device = impl.device] { c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index()); };
  return std::make_shared<activation::RecomputationPlanner>(settings, wait);
}

void end_step_of_recomputation(EngineBase::Impl& impl) {
  activation::RecomputationPlanner& recomputing = *impl.activations.layers;
  if (!recomputing.is_on()) return;
  if (const std::string lists = recomputing.unchosen(); !lists.empty()) choose(impl, lists);
  if (recomputing.is_without_effect() && impl.is_first())
    log_warning(
        formatted("activation checkpointing is on ({}), and step {} recomputed nothing: the model's forward calls neither "
                  "gannet::run_layers(layers(), ...), which the config cuts, nor gannet::checkpointing::checkpoint "
                  "(docs/activation.md)",
                  recomputing.settings().to_string(), impl.progress.global_steps));
}

at::Tensor EngineBase::forward_layers(const std::shared_ptr<torch::nn::SequentialImpl>& model,
                                      const std::vector<at::Tensor>& inputs) {
  return run_layers(layers_of(model), inputs);
}

void EngineBase::gradient_checkpointing_enable() { impl_->activations.layers->turn(true); }
void EngineBase::gradient_checkpointing_disable() { impl_->activations.layers->turn(false); }
bool EngineBase::is_gradient_checkpointing() const { return impl_->activations.layers->is_on(); }

}  // namespace gannet
