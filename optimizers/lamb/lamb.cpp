// LAMB on the CPU.
#include "optimizers/lamb/lamb.h"

#include <algorithm>

#include "optimizers/device/part.h"
#include "optimizers/lamb/kernel.h"

namespace gannet::rules {
namespace {

class Lamb : public LambBase {
 public:
  using LambBase::LambBase;

  // Sums the blocks in parallel, and then adds the sums of a tensor's blocks in order.
  void sums(const gannet_update_args& args, uint32_t, double* sums) {
    blocks_.clear();
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const TensorBlocks of_tensor(sdk::segment(args, s));
      for (uint64_t b = 0; b < of_tensor.count(); ++b) blocks_.push_back({s, of_tensor.begin(b), of_tensor.end(b), {}});
    }
    const LambStep step = step_of(args);
    parallel_for(blocks_.size(), 1, [&](uint64_t begin, uint64_t end) {
      for (uint64_t b = begin; b < end; ++b) blocks_[b].sums = lamb_sums_cpu(step, args, blocks_[b].begin, blocks_[b].end);
    });
    for (const Block& block : blocks_) {
      sums[args.sum_count * block.segment] += block.sums.weights;
      sums[args.sum_count * block.segment + 1] += block.sums.update;
    }
  }

  // Each thread works from its last elements to its first, because the elements that the first pass
  // read last are still in the caches.
  void update(const gannet_update_args& args) {
    const LambStep step = step_of(args);
    parallel_for(args.numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) {
      for (uint64_t s = args.segment_count; s-- > 0;) {
        const gannet_segment& part = sdk::segment(args, s);
        const uint64_t first = std::max(begin, part.offset), last = std::min(end, part.offset + part.numel);
        for (uint64_t to = last, from; first < to; to = from) {
          from = to - first > kStretch ? to - kStretch : first;
          lamb_update_cpu(step, coefficient(args.sums + s * args.sum_count), args, from, to);
        }
      }
    });
  }

 private:
  // Within a stretch of this length, elements are processed in ascending order, as the prefetches
  // expect.
  static constexpr uint64_t kStretch = 4 * sdk::kGrain;

  struct Block {
    uint64_t segment, begin, end;  // `begin` and `end` are indices in the range
    LambSums sums;
  };
  std::vector<Block> blocks_;  // kept between calls, so that a step allocates nothing
};

}  // namespace
}  // namespace gannet::rules

GANNET_PLUGINS("optimizer/lamb@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::Lamb>("Lamb", "cpu", "1.0.0",
                                                           "LAMB: Adam's direction with a trust ratio for each tensor"))
