// AdamW8bit on the CPU.
#include "optimizers/adam8bit/adam8bit.h"

#include <algorithm>

#include "optimizers/adam8bit/kernel.h"

namespace gannet::rules {
namespace {

class AdamW8bit : public Adam8bitBase {
 public:
  using Adam8bitBase::Adam8bitBase;

  void update(const gannet_update_args& args) {
    const Adam8bitStep step = step_of(args);
    parallel_for(args.numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) {
      for (uint64_t k = 0; k < args.segment_count; ++k) {
        const gannet_segment& part = sdk::segment(args, k);
        const uint64_t first = std::max(begin, part.offset), last = std::min(end, part.offset + part.numel);
        if (first < last) adam8bit_update_cpu(step, args, first, last);
      }
    });
  }
};

}  // namespace
}  // namespace gannet::rules

GANNET_PLUGINS("optimizer/adamw8bit@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::AdamW8bit>("AdamW8bit", "cpu", "1.0.0",
                                                                "AdamW with both moments in 8 bits, scaled by blocks"))
