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

  void sums(const gannet_update_args& args, uint32_t round, double* sums) {
    const LambStep step = step_of(args);
    parallel_(*this, args, wanted_, round, sums,
              [&](uint64_t, uint64_t begin, uint64_t end, double* share) { lamb_sums_cpu(step, args, begin, end, share); });
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

  const std::vector<gannet_sum_spec> wanted_ = wanted_sums();
  sdk::ParallelSums parallel_;
};

}  // namespace
}  // namespace gannet::rules

GANNET_PLUGINS("optimizer/lamb@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::Lamb>("Lamb", "cpu", "1.0.0",
                                                           "LAMB: Adam's direction with a trust ratio for each tensor"))
