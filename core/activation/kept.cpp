#include "activation/kept.h"

#include <algorithm>
#include <utility>

namespace gannet::activation {
namespace {

int64_t largest_gradient(const ActivationMeasurement& kept) {
  int64_t largest = kept.rest_largest_bytes;
  for (const MeasuredLayer& layer : kept.layers) largest = std::max(largest, layer.largest_bytes);
  return largest;
}

// While backward is in a layer, the layers after it hold nothing.
int64_t in_backward(const MeasuredLayer& layer) { return layer.input_bytes + layer.saved_bytes + layer.largest_bytes; }

// The peak for estimates without per-layer data, where the order in which backward drops tensors is
// unknown.
ActivationPeak all_the_time(int64_t bytes) { return {.bytes = bytes, .last_bytes = bytes}; }

}  // namespace

ActivationPeak kept_at_most(const ActivationMeasurement& kept, const std::vector<LayerGroup>& groups, bool on_tier) {
  ActivationPeak most;
  int64_t before = 0, input_before = 0;  // bytes of the earlier groups; on a tier: the input of the last of them
  for (const LayerGroup& group : groups) {
    int64_t inside = 0, gradient = 0;
    for (size_t i = group.begin; i < group.end; ++i) {
      inside += kept.layers[i].input_bytes + kept.layers[i].saved_bytes;
      gradient = std::max(gradient, kept.layers[i].largest_bytes);
    }
    if (group.begin == 0) most.last_bytes = group.is_region ? inside + gradient : in_backward(kept.layers.front());
    most.bytes = std::max(most.bytes, before + input_before + inside + gradient);
    const int64_t input = kept.layers[group.begin].input_bytes;
    input_before = 0;
    if (!group.is_region) {
      before += inside;
    } else if (on_tier) {
      most.tier_bytes += input;
      input_before = input;
    } else {
      before += input;
    }
  }
  // Backward begins outside of the layers.
  most.bytes = std::max(most.bytes, before + input_before + kept.rest_bytes + kept.rest_largest_bytes);
  return most;
}

std::vector<LayerGroup> groups_of(const ActivationMeasurement& kept, const config::ActivationCheckpointing& settings) {
  const size_t layers = kept.layers.size();
  if (layers == 0) return {};
  if (settings.memory_limit) return single_regions(choose(kept.layers, *settings.memory_limit).is_region);
  if (settings.interval) return groups_of(layers, static_cast<size_t>(*settings.interval));
  if (settings.number_checkpoints) return even_groups(layers, static_cast<size_t>(*settings.number_checkpoints));
  if (settings.partition_activations || settings.cpu_checkpointing) return groups_of(layers, 1);
  return {{0, layers, false}};
}

// All saved tensors are on the tier, except those in flight, which belong to at most two
// consecutive layers. Without layers, all of them may be in flight.
ActivationPeak kept_on_tier(const ActivationMeasurement& kept, bool tier_is_memory) {
  const auto all_of = [](const MeasuredLayer& layer) { return layer.input_bytes + layer.saved_bytes; };
  int64_t all = kept.rest_bytes, before = 0, most = kept.rest_bytes + kept.rest_largest_bytes;
  for (const MeasuredLayer& layer : kept.layers) {
    all += all_of(layer);
    most = std::max(most, std::exchange(before, all_of(layer)) + in_backward(layer));
  }
  if (tier_is_memory) return all_the_time(all + largest_gradient(kept));
  return {most, all, kept.layers.empty() ? most : in_backward(kept.layers.front())};
}

ActivationPeak kept_at_most(const ActivationMeasurement& kept, const config::ActivationCheckpointing& settings,
                            bool tier_is_memory) {
  if (settings.keep != config::kKeepOnDevice) return kept_on_tier(kept, tier_is_memory && settings.keep == "cpu");
  const std::vector<LayerGroup> groups = groups_of(kept, settings);
  const bool has_regions = std::any_of(groups.begin(), groups.end(), [](const LayerGroup& one) { return one.is_region; });
  if (!has_regions && !settings.recompute.empty() && kept.selective_bytes)
    return all_the_time(*kept.selective_bytes + largest_gradient(kept));
  return kept_at_most(kept, groups, settings.cpu_checkpointing && !(tier_is_memory && settings.device == "cpu"));
}

}  // namespace gannet::activation
