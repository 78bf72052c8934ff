#include "activation/cuts.h"

#include <algorithm>

namespace gannet::activation {

std::vector<LayerGroup> even_groups(size_t layers, size_t regions) {
  regions = std::clamp<size_t>(regions, 1, std::max<size_t>(layers, 1));
  std::vector<LayerGroup> groups;
  for (size_t begin = 0, r = 0; begin < layers; ++r) {
    const size_t end = begin + layers / regions + (r < layers % regions ? 1 : 0);
    groups.push_back({begin, end, true});
    begin = end;
  }
  return groups;
}

std::vector<LayerGroup> groups_of(size_t layers, size_t interval) {
  interval = std::max<size_t>(interval, 1);
  std::vector<LayerGroup> groups;
  for (size_t begin = 0; begin < layers; begin += interval) groups.push_back({begin, std::min(begin + interval, layers), true});
  return groups;
}

std::vector<LayerGroup> single_regions(const std::vector<bool>& is_region) {
  std::vector<LayerGroup> groups;
  for (size_t i = 0; i < is_region.size(); ++i) {
    if (!is_region[i] && !groups.empty() && !groups.back().is_region)
      groups.back().end = i + 1;
    else
      groups.push_back({i, i + 1, is_region[i]});
  }
  return groups;
}

int64_t peak_bytes(const std::vector<MeasuredLayer>& layers, const std::vector<bool>& is_region) {
  int64_t before = 0, peak = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    before += layers[i].input_bytes;
    peak = std::max(peak, before + layers[i].saved_bytes);
    if (!is_region[i]) before += layers[i].saved_bytes;
  }
  return peak;
}

Choice choose(const std::vector<MeasuredLayer>& layers, int64_t limit) {
  Choice choice;
  choice.is_region.assign(layers.size(), false);
  choice.peak_bytes = choice.peak_bytes_without = peak_bytes(layers, choice.is_region);
  std::vector<size_t> order;
  for (size_t i = 0; i < layers.size(); ++i)
    if (layers[i].saved_bytes > 0) order.push_back(i);
  // Compares the ratios of bytes to seconds as cross products, so that a layer that took no time
  // ranks first.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return static_cast<double>(layers[a].saved_bytes) * layers[b].seconds >
           static_cast<double>(layers[b].saved_bytes) * layers[a].seconds;
  });
  for (const size_t layer : order) {
    if (choice.peak_bytes <= limit) break;
    choice.is_region[layer] = true;
    choice.seconds += layers[layer].seconds;
    choice.peak_bytes = peak_bytes(layers, choice.is_region);
  }
  return choice;
}

}  // namespace gannet::activation
