// How tensors lie in a flat buffer, how that is cut into buckets, and each bucket into a shard for every rank: numbers only.
//
//   Layout layout = lay_out({10, 100, 7}, /*bucket_numel=*/160, /*ranks=*/2);
//   for (const Shard& shard : shards_of(layout, /*rank=*/0, 2)) ...        // what rank 0 owns
//
//   flat buffer    | bucket 0: t0 padding    | bucket 1: t1 t2 pad. |
//   owned by rank  |    0     |      1       |    0     |     1     |      equal shards: one reduce-scatter or all-gather each
//   rank 1 has     its shards one after another, without gaps
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gannet::zero {

// Every tensor begins at a multiple of it, in elements, so does every shard: a cache line of the smallest dtype.
inline constexpr int64_t kAlignment = 32;

// Elements. Buckets of gradients and pages of states are at most this large: the first one is on its way while the others are
// made.
inline constexpr int64_t kOverlapNumel = 8 << 20;

struct Bucket {
  size_t first = 0, last = 0;  // tensors [first, last)
  int64_t offset = 0, numel = 0;
};

struct Layout {
  std::vector<int64_t> numels, offsets;  // [tensors]
  std::vector<Bucket> buckets;           // they cover the flat buffer in order
  int64_t numel = 0;                     // padding included, which stays zero
};

// Buckets are filled from the last tensor on, since backward makes the last gradients first: tensors are added while a bucket
// has no more than `bucket_numel` elements; a larger tensor is one of its own. Each is padded to `ranks` aligned shards.
Layout lay_out(const std::vector<int64_t>& numels, int64_t bucket_numel, uint32_t ranks, int64_t alignment = kAlignment);

// The same with no tensor in two shards, for optimizers that need whole tensors: each bucket's tensors are cut into `ranks` runs,
// in their order, the longest as short as can be, and all shards are as long as that one. What is left is padding, so that a
// bucket has at least as many elements as `ranks` times the largest tensor.
Layout lay_out_whole(const std::vector<int64_t>& numels, int64_t bucket_numel, uint32_t ranks, int64_t alignment = kAlignment);

// A rank's part of a bucket.
struct Shard {
  int64_t offset = 0;  // in the flat buffer
  int64_t own = 0;     // in the rank's own buffers
  int64_t numel = 0;
};
std::vector<Shard> shards_of(const Layout& layout, uint32_t rank, uint32_t ranks);  // [buckets]

// The part of a tensor that lies in a shard.
struct Part {
  size_t tensor = 0;
  int64_t begin = 0;   // in the tensor
  int64_t offset = 0;  // in the flat buffer
  int64_t own = 0;     // in the rank's own buffers
  int64_t numel = 0;
};
std::vector<Part> parts_of(const Layout& layout, const std::vector<Shard>& shards);  // in the order of the tensors

}  // namespace gannet::zero
