// Estimates the peak memory of one micro-batch's activations under given settings. This is plain
// arithmetic that needs no model.
//
//   ActivationMeasurement kept{.layers = measured, .rest_bytes = 4096};
//   kept_at_most(kept, groups_of(kept.layers.size(), 1), /*on_tier=*/false);     // each layer is recomputed
//
// Backward runs from the last region to the first. At each region, memory holds the inputs of the
// earlier regions, the tensors saved by layers outside of regions, everything that the region's own
// layers save (just recomputed), and one gradient as large as the largest tensor that one of these
// layers saved. Before backward reaches the last layer, it runs through the code outside the
// layers, again with one gradient in memory. Temporary memory of running operators is not counted.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "activation/cuts.h"
#include "config/settings.h"

namespace gannet::activation {

struct ActivationMeasurement {
  std::vector<MeasuredLayer> layers;       // in execution order; empty: the model declares none
  int64_t rest_bytes = 0;                  // bytes saved outside of layers, for example by the loss; backward drops them first
  int64_t rest_largest_bytes = 0;          // size of the largest tensor in rest_bytes
  std::optional<int64_t> selective_bytes;  // total if the operators of `recompute` are recomputed; null: not measured
};

struct ActivationPeak {
  int64_t bytes = 0;       // on the device
  int64_t tier_bytes = 0;  // inputs of regions on a tier
  int64_t last_bytes = 0;  // bytes on the device when backward is in the first layers
};

/// Estimates the peak for these groups. `on_tier`: the inputs of regions are on a tier, except
/// those of the current region and those of the region before it, which are prefetched.
ActivationPeak kept_at_most(const ActivationMeasurement& kept, const std::vector<LayerGroup>& groups, bool on_tier);
/// Returns the groups into which these settings divide the layers. If none of the keys is set, the
/// result is one group that is not a region.
std::vector<LayerGroup> groups_of(const ActivationMeasurement& kept, const config::ActivationCheckpointing& settings);
/// Estimates the peak with all saved tensors on a tier.
ActivationPeak kept_on_tier(const ActivationMeasurement& kept, bool tier_is_memory);
/// Estimates the peak for an engine with these settings. `tier_is_memory`: a tier in the host's
/// memory is the device's own memory.
ActivationPeak kept_at_most(const ActivationMeasurement& kept, const config::ActivationCheckpointing& settings,
                            bool tier_is_memory);

}  // namespace gannet::activation
