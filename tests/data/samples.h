// A dataset of numbers for the loader's tests: a batch is the list of its samples' numbers.
#pragma once

#include <gannet/data.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace gannet {

using Numbers = std::vector<int64_t>;

struct Range {
  int64_t count = 0;
  std::function<void(size_t)> before_get = {};  // may throw or wait
  size_t size() const { return static_cast<size_t>(count); }
  int64_t get(size_t index) const {
    if (before_get) before_get(index);
    return static_cast<int64_t>(index);
  }
};

inline Numbers keep(std::vector<int64_t> samples) { return samples; }

inline std::shared_ptr<DataLoader<Numbers>> numbers(Dataset<Numbers> dataset, const LoaderOptions& options) {
  return make_loader<Numbers>(dataset, Collate<Numbers>(keep), options);
}

template <class Loader>
std::vector<Numbers> epoch_of(Loader& loader) {
  std::vector<Numbers> batches;
  for (auto& batch : loader) batches.push_back(batch);
  return batches;
}

}  // namespace gannet
