#include "params/layout.h"

#include <algorithm>

namespace gannet::zero {
namespace {

int64_t rounded_up(int64_t number, int64_t multiple) { return (number + multiple - 1) / multiple * multiple; }

}  // namespace

Layout lay_out(const std::vector<int64_t>& numels, int64_t bucket_numel, uint32_t ranks, int64_t alignment) {
  Layout layout;
  layout.numels = numels;
  layout.offsets.resize(numels.size());
  for (size_t last = numels.size(); last > 0;) {
    Bucket bucket;
    bucket.last = last;
    bucket.first = last - 1;
    bucket.numel = rounded_up(numels[bucket.first], alignment);
    while (bucket.first > 0) {
      const int64_t more = bucket.numel + rounded_up(numels[bucket.first - 1], alignment);
      if (more > bucket_numel) break;
      bucket.numel = more;
      --bucket.first;
    }
    bucket.numel = rounded_up(bucket.numel, alignment * static_cast<int64_t>(ranks));
    last = bucket.first;
    layout.buckets.push_back(bucket);
  }
  std::reverse(layout.buckets.begin(), layout.buckets.end());
  for (Bucket& bucket : layout.buckets) {
    bucket.offset = layout.numel;
    int64_t offset = bucket.offset;
    for (size_t t = bucket.first; t < bucket.last; ++t) {
      layout.offsets[t] = offset;
      offset += rounded_up(numels[t], alignment);
    }
    layout.numel += bucket.numel;
  }
  return layout;
}

std::vector<Shard> shards_of(const Layout& layout, uint32_t rank, uint32_t ranks) {
  std::vector<Shard> shards;
  int64_t own = 0;
  for (const Bucket& bucket : layout.buckets) {
    const int64_t numel = bucket.numel / ranks;
    shards.push_back({bucket.offset + rank * numel, own, numel});
    own += numel;
  }
  return shards;
}

std::vector<Part> parts_of(const Layout& layout, const std::vector<Shard>& shards) {
  std::vector<Part> parts;
  for (size_t b = 0; b < shards.size(); ++b) {
    const Shard& shard = shards[b];
    for (size_t t = layout.buckets[b].first; t < layout.buckets[b].last; ++t) {
      const int64_t first = std::max(layout.offsets[t], shard.offset);
      const int64_t last = std::min(layout.offsets[t] + layout.numels[t], shard.offset + shard.numel);
      if (first < last) parts.push_back({t, first - layout.offsets[t], first, shard.own + first - shard.offset, last - first});
    }
  }
  return parts;
}

}  // namespace gannet::zero
