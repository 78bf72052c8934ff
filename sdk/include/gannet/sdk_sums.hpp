/// Sums over tensors for optimizers with a loop of their own: in parallel, with results that depend
/// neither on the number of threads nor on how threads divide the piece. Element-wise rules get
/// them by declaring kSums (gannet/sdk_elementwise.hpp).
///
///   void sums(const gannet_update_args& a, uint32_t round, double* totals) {
///     const auto* g = static_cast<const float*>(a.grad);
///     parallel_(*this, a, wanted_sums(), round, totals, [&](uint64_t, uint64_t begin, uint64_t end, double* share) {
///       share[0] += a.grad_scale * a.grad_scale * sum_of_products(g, g, begin, end);
///     });
///   }
///   ParallelSums parallel_;
#pragma once

#include <gannet/abi.h>

#include <cstddef>
#include <cstdint>
#include <gannet/sdk.hpp>
#include <limits>
#include <vector>

namespace gannet::sdk {

/// Each thread's chunk is a multiple of this many elements (except the last one), so that it covers
/// whole pages of every buffer.
inline constexpr uint64_t kGrain = 16384;

#if defined(__CUDACC__)
#define GANNET_SUMS_FUNCTION __host__ __device__ __forceinline__
#elif defined(__HIP__) /* HIP's headers, which define these keywords, may not be included yet */
#define GANNET_SUMS_FUNCTION __attribute__((host)) __attribute__((device)) inline
#else
#define GANNET_SUMS_FUNCTION inline
#endif
/// The blocks in which a part of a tensor is summed. They begin at multiples of kBlockNumel in the
/// tensor, so that a block's sum depends neither on the rest of the piece nor on the threads.
///
///   const TensorBlocks blocks(part);
///   for (uint64_t b = 0; b < blocks.count(); ++b) sum += sum_of(blocks.begin(b), blocks.end(b));      // elements of the piece
class TensorBlocks {
 public:
  static constexpr uint64_t kBlockNumel = kGrain;
  explicit TensorBlocks(const gannet_segment& part)
      : offset_(part.offset), tensor_offset_(part.tensor_offset), numel_(part.numel) {}
  GANNET_SUMS_FUNCTION uint64_t count() const {
    return numel_ == 0 ? 0 : (tensor_offset_ + numel_ - 1) / kBlockNumel - tensor_offset_ / kBlockNumel + 1;
  }
  GANNET_SUMS_FUNCTION uint64_t begin(uint64_t block) const { return block == 0 ? offset_ : border(block); }
  GANNET_SUMS_FUNCTION uint64_t end(uint64_t block) const {
    const uint64_t full = border(block + 1), last = offset_ + numel_;
    return full < last ? full : last;
  }

 private:
  // Returns the boundary between block - 1 and block, as an index in the piece; block > 0.
  GANNET_SUMS_FUNCTION uint64_t border(uint64_t block) const {
    return (tensor_offset_ / kBlockNumel + block) * kBlockNumel - tensor_offset_ + offset_;
  }
  uint64_t offset_, tensor_offset_, numel_;
};
#undef GANNET_SUMS_FUNCTION

/// The sum over no elements, and the sum of two parts. NaN stays NaN.
inline double empty_sum(uint32_t reduce_op) {
  return reduce_op == GANNET_MAX   ? -std::numeric_limits<double>::infinity()
         : reduce_op == GANNET_MIN ? std::numeric_limits<double>::infinity()
                                   : 0;
}
inline void add_to_sum(double& sum, double part, uint32_t reduce_op) {
  if (reduce_op != GANNET_MAX && reduce_op != GANNET_MIN)
    sum += part;
  else if (part != part || (reduce_op == GANNET_MAX ? part > sum : part < sum))
    sum = part;
}

/// Implements sums() of an optimizer: calls body(segment, begin, end, share) for the blocks of each
/// segment on the host's threads, and then adds the shares to `sums` in the order of the blocks.
/// `share` has one number per wanted sum, initially the sum over no elements. Sums of other rounds
/// and of the other pass are ignored. Throws what body throws. Keep one per optimizer: its memory
/// is reused.
class ParallelSums {
 public:
  template <class Body>
  void operator()(const HostServices& host, const gannet_update_args& args, const std::vector<gannet_sum_spec>& wanted,
                  uint32_t round, double* sums, Body&& body) {
    blocks_.clear();
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const TensorBlocks of_tensor(segment(args, s));
      for (uint64_t b = 0; b < of_tensor.count(); ++b) blocks_.push_back({s, of_tensor.begin(b), of_tensor.end(b)});
    }
    const size_t count = wanted.size();
    shares_.resize(blocks_.size() * count);
    for (size_t i = 0; i < shares_.size(); ++i) shares_[i] = empty_sum(wanted[i % count].reduce_op);
    host.parallel_for(blocks_.size(), 1, [&](uint64_t first, uint64_t last) {
      for (uint64_t b = first; b < last; ++b)
        body(blocks_[b].segment, blocks_[b].begin, blocks_[b].end, shares_.data() + b * count);
    });
    for (size_t k = 0; k < count; ++k) {
      if (wanted[k].round != round) continue;
#if GANNET_TARGET_MINOR >= 2
      if (GANNET_HAS(&args, gannet_update_args, pass) && wanted[k].pass != args.pass) continue;
#endif
      for (size_t b = 0; b < blocks_.size(); ++b)
        add_to_sum(sums[blocks_[b].segment * args.sum_count + k], shares_[b * count + k], wanted[k].reduce_op);
    }
  }

 private:
  struct Block {
    uint64_t segment, begin, end;  // `begin` and `end` are indices in the piece
  };
  std::vector<Block> blocks_;
  std::vector<double> shares_;  // [blocks][wanted sums]
};

/// Returns the sum of a[i] * b[i] over [begin, end), computed in double, in which products of fp32
/// numbers are exact. Element begin + i is added to partial sum i % 16, so that compilers vectorise
/// the loop and its result does not depend on the vector width.
template <class T>
double sum_of_products(const T* a, const T* b, uint64_t begin, uint64_t end) {
  constexpr uint64_t kSums = 16;
  double sums[kSums] = {};
  uint64_t i = begin;
  for (; i + kSums <= end; i += kSums)
    for (uint64_t k = 0; k < kSums; ++k) sums[k] += static_cast<double>(a[i + k]) * static_cast<double>(b[i + k]);
  for (uint64_t k = 0; i + k < end; ++k) sums[k] += static_cast<double>(a[i + k]) * static_cast<double>(b[i + k]);
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace gannet::sdk
