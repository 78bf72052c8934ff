/// Keeps the keys and values of the tokens that a decoder has processed, so that each new token
/// costs only its own pass.
///
///   const auto [keys, values] = cache.append(layer, key, value);    // [B, heads, T, width] each -> [B, heads, S, width]
///
/// A layer's memory grows by doubling. Do not use it for training: it returns views of memory that
/// is overwritten later.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gannet {

class KvCache {
 public:
  /// Appends T tokens to a layer, and returns the keys and values of all S tokens that it now has.
  std::pair<at::Tensor, at::Tensor> append(size_t layer, const at::Tensor& key, const at::Tensor& value);
  /// Number of tokens of a layer.
  int64_t length(size_t layer = 0) const { return layer < layers_.size() ? layers_[layer].length : 0; }
  /// Makes row i the former row rows[i]. `rows` is [B'] int64.
  void reorder(const at::Tensor& rows);

 private:
  struct Layer {
    at::Tensor keys, values;  // [B, heads, capacity, width]
    int64_t length = 0;
  };
  std::vector<Layer> layers_;
};

}  // namespace gannet
