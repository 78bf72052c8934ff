// State of this thread's checkpointed regions, which the surrounding code can query.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <unordered_map>
#include <unordered_set>

namespace gannet::activation {

// While an object of this class lives, this thread runs a region's function, in its forward or in
// its recomputation.
class RegionScope {
 public:
  RegionScope();
  ~RegionScope();
  RegionScope(const RegionScope&) = delete;
};
bool is_in_region();

// The number of regions that have begun a forward, on this thread and on all threads.
struct RegionCounts {
  uint64_t here, everywhere;
};
RegionCounts region_counts();
void count_region();

// While an object of this class lives, it counts the bytes that operators of this thread's regions
// save, each storage once. If several live on a thread, only the innermost is updated.
class SavedBytes {
 public:
  SavedBytes();
  ~SavedBytes();
  SavedBytes(const SavedBytes&) = delete;
  /// Called by a region for each tensor that it drops, and by SelectiveRecomputation and SavedStore
  /// for every saved tensor, whether dropped or not.
  static void note(const at::Tensor& saved);
  /// Total bytes of the counted storages except `others` (those of parameters, inputs and
  /// results).
  int64_t without(const std::unordered_set<const c10::StorageImpl*>& others) const;
  /// Size in bytes of the largest storage that without() counts.
  int64_t largest_without(const std::unordered_set<const c10::StorageImpl*>& others) const;
  /// Like without(), but only storages that are still alive.
  int64_t alive_without(const std::unordered_set<const c10::StorageImpl*>& others) const;

 private:
  struct SeenStorage {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // held so that its address is not reused
    int64_t bytes;
  };
  std::unordered_map<const c10::StorageImpl*, SeenStorage> seen_;
  SavedBytes* const outer_;
};

}  // namespace gannet::activation
