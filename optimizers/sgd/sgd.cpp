// SGD on the CPU.
#include "optimizers/sgd/sgd.h"

#include "optimizers/sgd/kernel.h"

namespace gannet::optimizers {
namespace {

struct Sgd : SgdBase {
  using SgdBase::SgdBase;
  void update(const gannet_update_args& args) {
    const SgdStep step = step_of(args);
    parallel_for(args.numel, kGrain, [&](uint64_t begin, uint64_t end) { sgd_cpu(step, args, begin, end); });
  }
};

}  // namespace
}  // namespace gannet::optimizers

GANNET_PLUGINS("optimizer/sgd@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::optimizers::Sgd>("SGD", "cpu", "1.0.0",
                                                               "stochastic gradient descent, as torch.optim.SGD"))
