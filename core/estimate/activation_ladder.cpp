#include "estimate/activation_ladder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/table.h"
#include "base/text.h"

namespace gannet {
namespace {

using activation::ActivationMeasurement;
using activation::ActivationPeak;
using activation::MeasuredLayer;
using zero::KeptActivations;
using zero::Tier;

constexpr int64_t kMostSamples = int64_t{1} << 20;
constexpr const char* kBlock = "gannet.activation_checkpointing.";

KeptActivations activations_of(const zero::Plan& plan, const ActivationPeak& most, Tier tier) {
  return {static_cast<uint64_t>(most.bytes), static_cast<uint64_t>(most.tier_bytes), most.tier_bytes > 0 ? tier : Tier::kNone,
          plan.model.largest * plan.model.param_bytes, static_cast<uint64_t>(most.last_bytes)};
}

KeptActivations times(const KeptActivations& one, int64_t samples, int64_t of) {
  const double factor = static_cast<double>(samples) / static_cast<double>(of);
  return {static_cast<uint64_t>(static_cast<double>(one.bytes) * factor),
          static_cast<uint64_t>(static_cast<double>(one.tier_bytes) * factor), one.tier, one.gradient_bytes,
          static_cast<uint64_t>(static_cast<double>(one.last_bytes) * factor)};
}

// Returns the largest number of samples that fits, or 0 if not even one does. The bytes only grow
// with the number of samples.
int64_t most_samples(zero::Plan plan, const KeptActivations& one, const zero::FreeSpace& given, int64_t of) {
  zero::FreeSpace room = given;
  room.checkpoint.reset();
  const auto fits = [&](int64_t samples) {
    plan.activations = times(one, samples, of);
    return zero::lacks(plan, room).empty();
  };
  int64_t yes = 0, no = 1;
  for (; no <= kMostSamples && fits(no); no *= 2) yes = no;
  while (no <= kMostSamples && no - yes > 1) {
    const int64_t middle = yes + (no - yes) / 2;
    (fits(middle) ? yes : no) = middle;
  }
  return yes;
}

// Neighbouring layers that keep the same bytes share a row.
std::string layers_table(const ActivationMeasurement& kept) {
  Table table({"layer", "its input", "its operators save"});
  const auto text = [](int64_t bytes) { return size_text(static_cast<uint64_t>(bytes)); };
  for (size_t i = 0; i < kept.layers.size();) {
    const MeasuredLayer& first = kept.layers[i];
    size_t end = i + 1;
    while (end < kept.layers.size() && kept.layers[end].input_bytes == first.input_bytes &&
           kept.layers[end].saved_bytes == first.saved_bytes)
      ++end;
    const std::string name =
        end - i == 1 ? printable(first.name)
                     : formatted("{} to {} ({}), each", printable(first.name), printable(kept.layers[end - 1].name), end - i);
    table.add({name, text(first.input_bytes), text(first.saved_bytes)});
    i = end;
  }
  table.add({kept.layers.empty() ? "the whole model" : "outside of the layers", "", text(kept.rest_bytes)});
  return table.to_string();
}

}  // namespace

ActivationMeasurement kept_by_formula(const TransformerSize& size, uint32_t element_bytes) {
  const auto one = static_cast<int64_t>(size.tokens * size.width * element_bytes);
  const auto sums = static_cast<int64_t>(size.tokens * size.heads * sizeof(float));
  ActivationMeasurement kept;
  for (uint64_t i = 0; i < size.layers; ++i)
    kept.layers.push_back({formatted("block {}", i), one, 15 * one + sums, 1.0, 4 * one});
  kept.rest_bytes = 2 * one;  // the input and the result of the last norm
  kept.rest_largest_bytes = one;
  return kept;
}

ActivationMeasurement scaled(ActivationMeasurement kept, double factor) {
  const auto scale = [factor](int64_t bytes) { return static_cast<int64_t>(static_cast<double>(bytes) * factor); };
  for (MeasuredLayer& layer : kept.layers) {
    layer.input_bytes = scale(layer.input_bytes);
    layer.saved_bytes = scale(layer.saved_bytes);
    layer.largest_bytes = scale(layer.largest_bytes);
  }
  kept.rest_bytes = scale(kept.rest_bytes);
  kept.rest_largest_bytes = scale(kept.rest_largest_bytes);
  if (kept.selective_bytes) kept.selective_bytes = scale(*kept.selective_bytes);
  return kept;
}

void add_activations(zero::Plan& plan, const ActivationMeasurement& kept, const config::ActivationCheckpointing& settings,
                     const zero::FreeSpace& room) {
  const std::string& device = settings.keep == config::kKeepOnDevice ? settings.device : settings.keep;
  const Tier tier = device == "nvme" ? Tier::kNvme : Tier::kCpu;
  plan.activations = activations_of(plan, kept_at_most(kept, settings, plan.device_is_host), tier);
  if (kept.layers.empty()) return;
  const auto each = activation::groups_of(kept.layers.size(), 1);
  const std::string interval = formatted("{}interval to 1", kBlock);
  plan.activation_changes.push_back({interval, activations_of(plan, kept_at_most(kept, each, false), Tier::kNone)});
  const std::string on_tier = formatted("{}, activation_checkpointing.cpu_checkpointing to true", interval);
  const ActivationPeak on = kept_at_most(kept, each, true);
  if (!plan.device_is_host) plan.activation_changes.push_back({on_tier, activations_of(plan, on, Tier::kCpu)});
  if (room.nvme)
    plan.activation_changes.push_back(
        {formatted("{}, {}device to \"nvme\"", on_tier, kBlock), activations_of(plan, on, Tier::kNvme)});
}

std::string activations_text(const zero::Plan& plan, const ActivationMeasurement& kept, const zero::FreeSpace& room,
                             int64_t micro_batch) {
  Table rungs({"config", "activations", "on the tier", "largest micro-batch that fits"});
  const auto add = [&](const std::string& name, const KeptActivations& one) {
    const int64_t most = most_samples(plan, one, room, micro_batch);
    rungs.add({name, size_text(one.bytes + one.gradient_bytes), one.tier == Tier::kNone ? "-" : size_text(one.tier_bytes),
               !plan.device_is_host && !room.device ? "unknown: device"
               : most == 0                          ? "none"
               : most >= kMostSamples               ? "not bounded here"
                                                    : std::to_string(most)});
  };
  const config::ActivationCheckpointing nothing = config::Settings().activation_checkpointing;
  add("nothing recomputed", activations_of(plan, kept_at_most(kept, nothing, plan.device_is_host), Tier::kNone));
  add("as it is", plan.activations);
  for (const zero::ActivationChange& change : plan.activation_changes) add(formatted("set {}", change.keys), change.activations);
  return formatted(
      "Activations of a micro-batch of {}, kept for backward:\n\n{}\n{}\nIn the second table, activations are the most that is "
      "kept at once, a gradient as large as the largest tensor of a layer or outside of them, and the gradient of the largest "
      "parameter, before it "
      "is added to those of earlier micro-batches. What operators use only while they run is not in it.\n",
      micro_batch, layers_table(kept), rungs.to_string());
}

}  // namespace gannet
