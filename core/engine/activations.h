// Handles activations as the config specifies: recomputes layers or the results of single operators,
// and moves the inputs of regions and the tensors saved by operators to other memory.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>

#include "activation/cheap_operators.h"
#include "activation/configuration.h"
#include "activation/recomputing.h"
#include "activation/saved_store.h"
#include "activation/selective.h"

namespace gannet {

struct Activations {
  std::shared_ptr<const activation::Configuration> configuration;  // for regions; null: not configured
  std::shared_ptr<activation::RecomputationPlanner> layers;        // the layers of the model, and which of them are regions
  activation::CheapOperators operators{{}};                        // operators to recompute
  std::shared_ptr<activation::SavedStore> saved;                   // for the tensors that operators save; null: left in place

  // Applies the handling while a forward runs, on the forward's thread.
  class Forward {
   public:
    /// The parameters and buffers of `module` are never moved. `trains`: false for evaluation.
    Forward(const Activations& all, const std::shared_ptr<torch::nn::Module>& module, bool trains);

   private:
    activation::ConfigurationScope configuration_;  // set even if null: another engine's forward may enclose this one
    activation::RecomputationPlanner::Forward layers_;
    std::optional<activation::SelectiveRecomputation> operators_;
    std::optional<activation::SavedStore::Forward> saved_;
  };
};

}  // namespace gannet
