// What activations of one micro-batch take at most, by what the config has done with them: arithmetic, without a model.
//
//   Kept kept{.layers = measured, .rest_bytes = 4096};
//   kept_at_most(kept, groups_of(kept.layers.size(), 1), /*on_tier=*/false);     // with each layer recomputed
//
// Backward goes from the last region to the first. At each there are the inputs of the regions before it, what layers that are no
// regions save, all that the region's own layers save, which it has just computed again, and one gradient, as large as the
// largest tensor that one of these layers saved. Before the first of them it is in what is outside of the layers, with a gradient
// likewise. What else an operator uses only while it runs is not counted.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "activation/cuts.h"
#include "config/settings.h"

namespace gannet::activation {

struct Kept {
  std::vector<MeasuredLayer> layers;       // in their order; none: the model gives none
  int64_t rest_bytes = 0;                  // saved outside of layers, as by the loss; backward drops it first
  int64_t rest_largest_bytes = 0;          // of the largest tensor in it
  std::optional<int64_t> selective_bytes;  // of all, where the operators of `recompute` are run again; null: not measured
};

struct KeptAtMost {
  int64_t bytes = 0;       // with the device
  int64_t tier_bytes = 0;  // inputs of regions on a tier
  int64_t last_bytes = 0;  // of `bytes`, when backward is in the first layers
};

/// `on_tier`: inputs of regions are on a tier, but for those of the region at hand and of the one before it, which are read
/// meanwhile.
KeptAtMost kept_at_most(const Kept& kept, const std::vector<LayerGroup>& groups, bool on_tier);
/// The groups that these settings make of the layers. Without any of its keys one that is no region.
std::vector<LayerGroup> groups_of(const Kept& kept, const config::ActivationCheckpointing& settings);
/// With everything that is saved on a tier.
KeptAtMost kept_on_tier(const Kept& kept, bool tier_is_memory);
/// As an engine with these settings trains. `tier_is_memory`: a tier in the host's memory is the device's own.
KeptAtMost kept_at_most(const Kept& kept, const config::ActivationCheckpointing& settings, bool tier_is_memory);

}  // namespace gannet::activation
