// SGD on NVIDIA GPUs.
#include "optimizers/common/cuda.h"
#include "optimizers/sgd/cuda/kernel.h"
#include "optimizers/sgd/sgd.h"

namespace gannet::optimizers {
namespace {

struct Sgd : SgdBase {
  using SgdBase::SgdBase;
  void update(const gannet_update_args& all) {
    update_on_device(all, [this](const gannet_update_args& args) { return sgd_cuda(step_of(args), args); });
  }
};

}  // namespace
}  // namespace gannet::optimizers

GANNET_PLUGINS("optimizer/sgd@cuda", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::optimizers::Sgd>("SGD", "cuda", "1.0.0",
                                                               "stochastic gradient descent, as torch.optim.SGD"))
