// What regions of activation checkpointing tell the code around them, on this thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <unordered_map>
#include <unordered_set>

namespace gannet::activation {

// While it lives, this thread runs a region's function: its forward or its recomputation.
class InRegion {
 public:
  InRegion();
  ~InRegion();
  InRegion(const InRegion&) = delete;
};
bool is_in_region();

// Regions that have begun a forward: on this thread, and on all.
struct RegionCounts {
  uint64_t here, everywhere;
};
RegionCounts region_counts();
void count_region();

// While it lives, the bytes that operators of this thread's regions save, each storage once. The latest one is asked.
class SavedBytes {
 public:
  SavedBytes();
  ~SavedBytes();
  SavedBytes(const SavedBytes&) = delete;
  /// By a region, for what it drops; by the operators' recomputation, for what is saved, dropped or not.
  static void note(const at::Tensor& saved);
  /// Of all storages but these: of parameters, inputs and results.
  int64_t without(const std::unordered_set<const c10::StorageImpl*>& others) const;
  /// Of the largest of them.
  int64_t largest_without(const std::unordered_set<const c10::StorageImpl*>& others) const;
  /// Of those that somebody still holds.
  int64_t alive_without(const std::unordered_set<const c10::StorageImpl*>& others) const;

 private:
  struct Seen {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // so that its address is no other's
    int64_t bytes;
  };
  std::unordered_map<const c10::StorageImpl*, Seen> seen_;
  SavedBytes* const outer_;
};

}  // namespace gannet::activation
