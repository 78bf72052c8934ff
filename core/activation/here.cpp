#include "activation/here.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "params/interception.h"

namespace gannet::activation {
namespace {

std::atomic<uint64_t> regions_everywhere{0};
thread_local uint64_t regions_here = 0;
thread_local int depth = 0;
thread_local SavedBytes* meter = nullptr;

}  // namespace

RegionScope::RegionScope() { ++depth; }
RegionScope::~RegionScope() { --depth; }
bool is_in_region() { return depth > 0; }

RegionCounts region_counts() { return {regions_here, regions_everywhere.load()}; }
void count_region() {
  ++regions_here;
  ++regions_everywhere;
}

SavedBytes::SavedBytes() : outer_(std::exchange(meter, this)) {}
SavedBytes::~SavedBytes() { meter = outer_; }

void SavedBytes::note(const at::Tensor& saved) {
  if (meter == nullptr || !saved.has_storage()) return;
  c10::StorageImpl* const storage = saved.storage().unsafeGetStorageImpl();
  if (zero::is_watched(storage)) return;  // a gathered parameter
  meter->seen_.try_emplace(storage, SeenStorage{saved.storage().getWeakStorageImpl(), static_cast<int64_t>(storage->nbytes())});
}

int64_t SavedBytes::without(const std::unordered_set<const c10::StorageImpl*>& others) const {
  int64_t bytes = 0;
  for (const auto& [storage, seen] : seen_)
    if (!others.contains(storage)) bytes += seen.bytes;
  return bytes;
}

int64_t SavedBytes::largest_without(const std::unordered_set<const c10::StorageImpl*>& others) const {
  int64_t bytes = 0;
  for (const auto& [storage, seen] : seen_)
    if (!others.contains(storage)) bytes = std::max(bytes, seen.bytes);
  return bytes;
}

int64_t SavedBytes::alive_without(const std::unordered_set<const c10::StorageImpl*>& others) const {
  int64_t bytes = 0;
  for (const auto& [storage, seen] : seen_)
    if (!seen.storage.expired() && !others.contains(storage)) bytes += seen.bytes;
  return bytes;
}

}  // namespace gannet::activation
