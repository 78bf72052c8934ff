// Linked with -ffast-math, whose start-up object switches denormals off for the whole program when the file is opened.
#include <gannet/sdk.hpp>

namespace {

struct Fast : gannet::sdk::OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {gannet::sdk::learning_rate("0.01")};
  using OptimizerBase::OptimizerBase;
  void update(const gannet_update_args&) {}
};

}  // namespace

GANNET_PLUGINS("optimizer/fast", GANNET_TIER_STABLE, gannet::sdk::optimizer<Fast>("Fast", "", "0.1", "was built in a hurry"))
