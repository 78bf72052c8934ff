// Handling of activations as the config specifies: layers are recomputed, inputs of regions are
// kept elsewhere, and results of single operators are recomputed.
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
  std::shared_ptr<const activation::Configuration> configuration;  // of regions; null: not configured
  std::shared_ptr<activation::RecomputationPlanner> layers;        // layers of the model, and which are regions
  activation::CheapOperators operators{{}};                        // operators to recompute
  std::shared_ptr<activation::SavedStore> saved;                   // for all that operators save; null: in place

  // Active while a forward runs, on its thread.
  class Forward {
   public:
    /// `module`: its parameters and buffers are never moved. `trains`: false for evaluation.
    Forward(const Activations& all, const std::shared_ptr<torch::nn::Module>& module, bool trains);

   private:
    activation::ConfigurationScope configuration_;  // set even if null: another engine's forward may enclose this one
    activation::RecomputationPlanner::Forward layers_;
    std::optional<activation::SelectiveRecomputation> operators_;
    std::optional<activation::SavedStore::Forward> saved_;
  };
};

}  // namespace gannet
