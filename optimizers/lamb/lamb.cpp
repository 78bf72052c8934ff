// LAMB on the CPU.
#include "optimizers/lamb/lamb.h"

#include <algorithm>

#include "optimizers/lamb/kernel.h"

namespace gannet::rules {
namespace {

class Lamb : public LambBase {
 public:
  using LambBase::LambBase;

  // A tensor is summed in blocks that begin at multiples of sdk::kGrain of its own elements, and the blocks are added in their
  // order: the sum depends neither on the number of threads nor on what else lies in the range.
  void sums(const gannet_update_args& args, uint32_t, double* sums) {
    blocks_.clear();
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = sdk::segment(args, s);
      for (uint64_t done = 0; done < part.numel;) {
        const uint64_t count = std::min(part.numel - done, sdk::kGrain - (part.tensor_offset + done) % sdk::kGrain);
        blocks_.push_back({s, part.offset + done, part.offset + done + count, {}});
        done += count;
      }
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

  void update(const gannet_update_args& args) {
    const LambStep step = step_of(args);
    parallel_for(args.numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) {
      for (uint64_t s = 0; s < args.segment_count; ++s) {
        const gannet_segment& part = sdk::segment(args, s);
        const uint64_t first = std::max(begin, part.offset), last = std::min(end, part.offset + part.numel);
        if (first < last) lamb_update_cpu(step, coefficient(args.sums + s * args.sum_count), args, first, last);
      }
    });
  }

 private:
  struct Block {
    uint64_t segment, begin, end;  // elements of the range
    LambSums sums;
  };
  std::vector<Block> blocks_;  // of the last call: kept, so that a step allocates nothing
};

}  // namespace
}  // namespace gannet::rules

GANNET_PLUGINS("optimizer/lamb@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::Lamb>("Lamb", "cpu", "1.0.0",
                                                           "LAMB: Adam's direction with a trust ratio for each tensor"))
