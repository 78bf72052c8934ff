// Adam and AdamW on the CPU.
#include "optimizers/adam/adam.h"

#include "optimizers/adam/kernel.h"

namespace gannet::optimizers {
namespace {

template <bool kIsAdamW>
struct Adam : AdamBase<kIsAdamW> {
  using AdamBase<kIsAdamW>::AdamBase;
  void update(const gannet_update_args& args) {
    const AdamStep step = this->step_of(args);
    this->parallel_for(args.numel, kGrain,
                       [&](uint64_t begin, uint64_t end) { adam_cpu(step, this->torch_order(), args, begin, end); });
  }
};

}  // namespace
}  // namespace gannet::optimizers

GANNET_PLUGINS("optimizer/adam@cpu optimizer/adamw@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::optimizers::Adam<false>>("Adam", "cpu", "1.0.0",
                                                                       "Adam; decoupled decay unless adam_w_mode is false"),
               gannet::sdk::optimizer<gannet::optimizers::Adam<true>>("AdamW", "cpu", "1.0.0",
                                                                      "Adam with decoupled weight decay"))
