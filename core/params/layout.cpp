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

namespace {

// Splits [first, last) into runs of at most `most` elements. Returns the first tensor of each run,
// or nothing if a tensor is larger or more than `ranks` runs are needed.
std::vector<size_t> runs_of(const std::vector<int64_t>& padded, size_t first, size_t last, int64_t most, uint32_t ranks) {
  std::vector<size_t> begins;
  int64_t numel = 0;
  for (size_t t = first; t < last; ++t) {
    if (padded[t] > most) return {};
    if (begins.empty() || numel + padded[t] > most) {
      if (begins.size() == ranks) return {};
      begins.push_back(t);
      numel = 0;
    }
    numel += padded[t];
  }
  return begins;
}

}  // namespace

Layout lay_out_whole(const std::vector<int64_t>& numels, int64_t bucket_numel, uint32_t ranks, int64_t alignment) {
  Layout layout;
  layout.numels = numels;
  layout.offsets.resize(numels.size());
  std::vector<int64_t> padded;
  for (const int64_t numel : numels) padded.push_back(rounded_up(numel, alignment));
  const int64_t largest = padded.empty() ? 0 : *std::max_element(padded.begin(), padded.end());
  const int64_t most = std::max(bucket_numel, largest * static_cast<int64_t>(ranks));
  for (size_t last = numels.size(); last > 0;) {  // from the back, as in lay_out
    Bucket& bucket = layout.buckets.emplace_back();
    bucket.last = last;
    bucket.first = last - 1;
    for (bucket.numel = padded[bucket.first]; bucket.first > 0 && bucket.numel + padded[bucket.first - 1] <= most;)
      bucket.numel += padded[--bucket.first];
    last = bucket.first;
  }
  std::reverse(layout.buckets.begin(), layout.buckets.end());
  for (Bucket& bucket : layout.buckets) {
    int64_t low = alignment, high = bucket.numel;  // binary search for the shortest shard that fits
    while (low < high) {
      const int64_t middle = (low + high) / 2 / alignment * alignment;
      if (runs_of(padded, bucket.first, bucket.last, middle, ranks).empty())
        low = middle + alignment;
      else
        high = middle;
    }
    const std::vector<size_t> begins = runs_of(padded, bucket.first, bucket.last, high, ranks);
    bucket.offset = layout.numel;
    bucket.numel = high * static_cast<int64_t>(ranks);
    int64_t offset = 0;
    size_t run = 0;
    for (size_t t = bucket.first; t < bucket.last; ++t) {
      if (run < begins.size() && t == begins[run]) offset = bucket.offset + static_cast<int64_t>(run++) * high;
      layout.offsets[t] = offset;
      offset += padded[t];
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

std::vector<TensorPart> parts_of(const Layout& layout, const std::vector<Shard>& shards) {
  std::vector<TensorPart> parts;
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
