// Chooses which layers of a list are recomputed. This is plain arithmetic that needs no model.
//
//   even_groups(12, 5);                 // 3 3 2 2 2
//   const Choice choice = choose(measured, 2 << 30);
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gannet::activation {

// Layers [begin, end), which are run together.
struct LayerGroup {
  size_t begin, end;
  bool is_region;
  bool operator==(const LayerGroup&) const = default;
};

/// Splits all layers into `regions` regions, or into one per layer if there are fewer layers. The
/// larger regions come first.
std::vector<LayerGroup> even_groups(size_t layers, size_t regions);
/// Splits all layers into regions of `interval` layers; the last one may have fewer.
std::vector<LayerGroup> groups_of(size_t layers, size_t interval);
/// Makes each layer for which `is_region` is true a region; the layers between them are grouped,
/// and run without recomputation.
std::vector<LayerGroup> single_regions(const std::vector<bool>& is_region);

// Measurements of a layer in one micro-batch.
struct MeasuredLayer {
  std::string name;
  int64_t input_bytes = 0;  // inputs not shared with earlier layers; kept even if the layer is not a region
  int64_t saved_bytes = 0;  // saved by its operators, except inputs, results and parameters; dropped by a region
  double seconds = 0;       // duration of its forward
  // Size of the largest tensor in saved_bytes. While backward is in the layer, a gradient of that
  // size exists in addition to the kept tensors.
  int64_t largest_bytes = 0;
};

struct Choice {
  std::vector<bool> is_region;  // [layers]
  int64_t peak_bytes = 0;       // the maximum number of bytes kept at the same time
  int64_t peak_bytes_without = 0;
  double seconds = 0;  // duration of the recomputation in each backward
};

/// Returns the maximum number of bytes kept at the same time. Backward runs from the last layer to
/// the first. At each layer it needs what the earlier layers keep and everything that the layer
/// itself saves, which a region recomputes.
int64_t peak_bytes(const std::vector<MeasuredLayer>& layers, const std::vector<bool>& is_region);

/// Greedy choice: until the peak is at most `limit`, the layer that saves the most bytes per second
/// of recomputation becomes a region (on a tie, the first). A layer that would not free any bytes
/// stays as it is. If the limit cannot be met, all other layers become regions.
Choice choose(const std::vector<MeasuredLayer>& layers, int64_t limit);

}  // namespace gannet::activation
