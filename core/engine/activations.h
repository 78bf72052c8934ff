// What an engine's config has done with activations: layers of the model are computed again, inputs of regions are kept
// elsewhere, results of single operators are made again.
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
  std::shared_ptr<const activation::Configuration> configuration;  // of regions; null: the config says nothing of them
  std::shared_ptr<activation::Recomputing> layers;                 // of the model, and which of them are regions
  activation::CheapOperators operators{{}};                        // whose results are made again
  std::shared_ptr<activation::SavedStore> saved;                   // for all that operators save; null: it stays

  // While a forward runs, on its thread.
  class Forward {
   public:
    /// `module`: its parameters and buffers are never moved. `trains`: no evaluation.
    Forward(const Activations& all, const std::shared_ptr<torch::nn::Module>& module, bool trains);

   private:
    activation::InForce configuration_;  // none, too: another engine's forward may be around this one
    activation::Recomputing::Forward layers_;
    std::optional<activation::Selective> operators_;
    std::optional<activation::SavedStore::Forward> saved_;
  };
};

}  // namespace gannet
