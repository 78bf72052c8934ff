#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gannet/kv_cache.h>

#include <algorithm>

namespace gannet {

std::pair<at::Tensor, at::Tensor> KvCache::append(size_t layer, const at::Tensor& key, const at::Tensor& value) {
  if (layer >= layers_.size()) layers_.resize(layer + 1);
  Layer& kept = layers_[layer];
  const int64_t needed = kept.length + key.size(2);
  if (!kept.keys.defined() || kept.keys.size(2) < needed) {
    const auto grown = [&](const at::Tensor& old, const at::Tensor& like) {
      std::vector<int64_t> shape = like.sizes().vec();
      shape[2] = std::max<int64_t>(64, 2 * needed);
      const at::Tensor memory = at::empty(shape, like.options().requires_grad(false));
      if (kept.length > 0) memory.narrow(2, 0, kept.length).copy_(old.narrow(2, 0, kept.length));
      return memory;
    };
    kept.keys = grown(kept.keys, key);
    kept.values = grown(kept.values, value);
  }
  TORCH_INTERNAL_ASSERT(kept.keys.size(0) == key.size(0));
  kept.keys.narrow(2, kept.length, key.size(2)).copy_(key);
  kept.values.narrow(2, kept.length, key.size(2)).copy_(value);
  kept.length = needed;
  return {kept.keys.narrow(2, 0, needed), kept.values.narrow(2, 0, needed)};
}

void KvCache::reorder(const at::Tensor& rows) {
  for (Layer& kept : layers_) {
    kept.keys = kept.keys.index_select(0, rows);
    kept.values = kept.values.index_select(0, rows);
  }
}

}  // namespace gannet
