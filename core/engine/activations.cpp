#include "engine/activations.h"

#include <ATen/core/grad_mode.h>

#include <unordered_set>

namespace gannet {
namespace {

// Returns a predicate that is true for storages of the module. The storages are collected on the
// predicate's first call, when the first tensor without a gradient is saved.
std::function<bool(const c10::StorageImpl*)> owned_by(const std::shared_ptr<torch::nn::Module>& module) {
  struct OwnedStorages {
    std::unordered_set<const c10::StorageImpl*> storages;
    bool is_known = false;
  };
  return [module, owned = std::make_shared<OwnedStorages>()](const c10::StorageImpl* storage) {
    if (!std::exchange(owned->is_known, true))
      for (const auto& tensors : {module->parameters(), module->buffers()})
        for (const at::Tensor& tensor : tensors)
          if (tensor.defined() && tensor.has_storage())
            owned->storages.insert(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
    return owned->storages.contains(storage);
  };
}

}  // namespace

Activations::Forward::Forward(const Activations& all, const std::shared_ptr<torch::nn::Module>& module, bool trains)
    : configuration_(all.configuration), layers_(all.layers) {
  // Inside one of the program's own regions, the region decides what is kept.
  if (!at::GradMode::is_enabled() || activation::is_dropping()) return;
  if (!all.operators.empty()) operators_.emplace(all.operators);
  if (all.saved && trains) saved_.emplace(all.saved, owned_by(module));
}

}  // namespace gannet
