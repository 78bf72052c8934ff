// Which layers of a list are computed again: arithmetic, without a model.
//
//   even_groups(12, 5);                 // 3 3 2 2 2
//   const Choice choice = choose(measured, 2 << 30);
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gannet::activation {

// Layers [begin, end), run together.
struct LayerGroup {
  size_t begin, end;
  bool is_region;
  bool operator==(const LayerGroup&) const = default;
};

/// All layers as so many regions, the larger ones first; as many as there are layers at most.
std::vector<LayerGroup> even_groups(size_t layers, size_t regions);
/// All layers as regions of so many; the last one may have fewer.
std::vector<LayerGroup> groups_of(size_t layers, size_t interval);
/// A region for each layer that is marked; those between are run together as they are.
std::vector<LayerGroup> single_regions(const std::vector<bool>& is_region);

// Of a layer, in one micro-batch.
struct MeasuredLayer {
  std::string name;
  int64_t input_bytes = 0;  // of the inputs that no layer before it took: kept whether it is a region or not
  int64_t saved_bytes = 0;  // what its operators save beside inputs, results and parameters: kept unless it is a region
  double seconds = 0;       // of its forward
  // Of the largest tensor in saved_bytes. While backward is in the layer there is a gradient of that size beside what is kept.
  int64_t largest_bytes = 0;
};

struct Choice {
  std::vector<bool> is_region;  // [layers]
  int64_t peak_bytes = 0;       // of what is kept at once
  int64_t peak_bytes_without = 0;
  double seconds = 0;  // of recomputation in each backward
};

/// The most that is kept at once. Backward goes from the last layer to the first: at each, the layers before it are kept, and all
/// that it saves itself, which a region computes again.
int64_t peak_bytes(const std::vector<MeasuredLayer>& layers, const std::vector<bool>& is_region);

/// Greedy: until the peak is at most `limit`, the layer that saves most bytes per second of recomputation becomes a region (of
/// equal ones the first). A layer that would not lower any byte stays. The limit may be missed: then all others are regions.
Choice choose(const std::vector<MeasuredLayer>& layers, int64_t limit);

}  // namespace gannet::activation
