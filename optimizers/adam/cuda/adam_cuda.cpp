// Adam and AdamW on NVIDIA GPUs.
#include "optimizers/adam/adam.h"
#include "optimizers/adam/cuda/kernel.h"
#include "optimizers/common/cuda.h"

namespace gannet::optimizers {
namespace {

template <bool kIsAdamW>
struct Adam : AdamBase<kIsAdamW> {
  using AdamBase<kIsAdamW>::AdamBase;
  void update(const gannet_update_args& all) {
    update_on_device(
        all, [this](const gannet_update_args& args) { return adam_cuda(this->step_of(args), this->torch_order(), args); });
  }
};

}  // namespace
}  // namespace gannet::optimizers

GANNET_PLUGINS("optimizer/adam@cuda optimizer/adamw@cuda", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::optimizers::Adam<false>>("Adam", "cuda", "1.0.0",
                                                                       "Adam; decoupled decay unless adam_w_mode is false"),
               gannet::sdk::optimizer<gannet::optimizers::Adam<true>>("AdamW", "cuda", "1.0.0",
                                                                      "Adam with decoupled weight decay"))
