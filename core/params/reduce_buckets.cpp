#include "params/reduce_buckets.h"

#include <algorithm>

namespace gannet {

std::vector<ReduceBucket::Stretch> ReduceBuckets::stretches(const Range& range, const ReduceBucket& bucket, size_t p) {
  const auto& parameter = range.parameters[p];
  if (!range.cuts_each_tensor()) return {{0, parameter.offset - bucket.offset, parameter.numel}};
  std::vector<ReduceBucket::Stretch> all;
  const int64_t part = range.shards[p].numel, at = range.shards[p].own - bucket.shard.own;
  for (int64_t begin = 0, rank = 0; begin < parameter.numel; begin += part, ++rank)
    all.push_back({begin, rank * bucket.shard.numel + at, std::min(part, parameter.numel - begin)});
  return all;
}

std::vector<ReduceBucket> ReduceBuckets::of(const Range& range, int64_t numel, uint32_t ranks) {
  std::vector<ReduceBucket> buckets;
  const auto& cuts = range.layout.buckets;
  for (size_t last = cuts.size(); last > 0;) {
    size_t first = last - 1;
    ReduceBucket& bucket = buckets.emplace_back();
    bucket.numel = cuts[first].numel;
    while (range.cuts_each_tensor() && first > 0 && bucket.numel + cuts[first - 1].numel <= numel)
      bucket.numel += cuts[--first].numel;
    bucket.first = cuts[first].first;
    bucket.last = cuts[last - 1].last;
    bucket.offset = cuts[first].offset;
    if (range.is_sharded()) bucket.shard = {range.shards[first].offset, range.shards[first].own, bucket.numel / ranks};
    last = first;

    std::vector<ReduceBucket::Stretch> taken;
    for (size_t p = bucket.first; p < bucket.last; ++p) {
      const auto& its = bucket.of.emplace_back(stretches(range, bucket, p));
      taken.insert(taken.end(), its.begin(), its.end());
    }
    std::sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
    int64_t end = 0;
    for (const auto& one : taken) {
      if (end < one.at) bucket.gaps.emplace_back(end, one.at - end);
      end = one.at + one.numel;
    }
    if (end < bucket.numel) bucket.gaps.emplace_back(end, bucket.numel - end);
  }
  return buckets;
}

}  // namespace gannet
