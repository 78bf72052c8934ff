// Invariants of every accepted pickle: no null, a bounded depth, tensors within their storages.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdlib>

#include "files/pickle.h"

namespace gannet::fuzz {

inline void check(bool holds) {
  if (!holds) std::abort();
}

inline void check_tensor(const files::StoredTensor& tensor, const files::Pickle& pickle) {
  const auto storage = pickle.storages.find(tensor.storage);
  check(storage != pickle.storages.end() && tensor.sizes.size() == tensor.strides.size() && tensor.storage_offset >= 0);
  __int128 last = tensor.storage_offset;
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    check(tensor.sizes[i] >= 0 && tensor.strides[i] >= 0);
    if (tensor.sizes[i] == 0) return;
    last += static_cast<__int128>(tensor.sizes[i] - 1) * tensor.strides[i];
    check(last <= INT64_MAX);
  }
  if (tensor.numel() > 0) check((last + 1) * static_cast<__int128>(c10::elementSize(tensor.dtype)) <= storage->second.bytes());
}

// By recursion, as those who read a checkpoint do. `left`: shared branches may be met many times.
inline void walk(const files::Object& object, const files::Pickle& pickle, int depth, int& left) {
  check(depth <= files::kMaxDepth);
  if (--left < 0) return;
  if (object.kind == files::Object::Kind::kTensor) check_tensor(object.tensor, pickle);
  for (const auto& item : object.items) {
    check(item != nullptr);
    walk(*item, pickle, depth + 1, left);
  }
  for (const auto& [key, value] : object.entries) {
    check(key && value);
    walk(*key, pickle, depth + 1, left);
    walk(*value, pickle, depth + 1, left);
  }
}

inline void walk(const files::Pickle& pickle) {
  int left = 100'000;
  walk(*pickle.root, pickle, 0, left);
}

}  // namespace gannet::fuzz
