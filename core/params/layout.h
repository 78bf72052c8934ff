// Lays out tensors in a flat buffer, cuts it into buckets, and cuts each bucket into one shard per
// rank. Works on sizes only, not on tensors.
//
//   Layout layout = lay_out({10, 100, 7}, /*bucket_numel=*/160, /*ranks=*/2);
//   for (const Shard& shard : shards_of(layout, /*rank=*/0, 2)) ...        // what rank 0 owns
//
//   flat buffer    | bucket 0: t0 padding    | bucket 1: t1 t2 pad. |
//   owned by rank  |    0     |      1       |    0     |     1     |      equal-sized shards: one collective per bucket
//   rank 1 has     its shards one after another, without gaps
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gannet::zero {

// Alignment of every tensor and every shard, in elements: one cache line in the smallest dtype.
inline constexpr int64_t kAlignment = 32;

// The maximum size, in elements, of a gradient bucket and of a page of states: small enough that
// the first one is in flight while the others are computed.
inline constexpr int64_t kOverlapNumel = 8 << 20;

struct Bucket {
  size_t first = 0, last = 0;  // tensors [first, last)
  int64_t offset = 0, numel = 0;
};

struct Layout {
  std::vector<int64_t> numels, offsets;  // [tensors]
  std::vector<Bucket> buckets;           // consecutive; they cover the flat buffer
  int64_t numel = 0;                     // including padding, which stays zero
};

// Buckets are filled from the last tensor backwards, because backward computes the last gradients
// first. A bucket holds up to `bucket_numel` elements; a larger tensor gets its own bucket. Each
// bucket is padded to `ranks` aligned shards.
Layout lay_out(const std::vector<int64_t>& numels, int64_t bucket_numel, uint32_t ranks, int64_t alignment = kAlignment);

// Like lay_out, but no tensor is split across shards, for optimizers that need whole tensors. Each
// bucket's tensors are cut in order into `ranks` runs so that the longest run is as short as
// possible. All shards are as long as that run, and the rest is padding. A bucket thus has at least
// `ranks` times as many elements as its largest tensor.
Layout lay_out_whole(const std::vector<int64_t>& numels, int64_t bucket_numel, uint32_t ranks, int64_t alignment = kAlignment);

// The part of a bucket that one rank owns.
struct Shard {
  int64_t offset = 0;  // in the flat buffer
  int64_t own = 0;     // in the rank's shard buffers
  int64_t numel = 0;
};
std::vector<Shard> shards_of(const Layout& layout, uint32_t rank, uint32_t ranks);  // [buckets]

// The part of a tensor that is in a shard.
struct TensorPart {
  size_t tensor = 0;
  int64_t begin = 0;   // in the tensor
  int64_t offset = 0;  // in the flat buffer
  int64_t own = 0;     // in the rank's shard buffers
  int64_t numel = 0;
};
std::vector<TensorPart> parts_of(const Layout& layout, const std::vector<Shard>& shards);  // in tensor order

}  // namespace gannet::zero
