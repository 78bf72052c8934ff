#include "bad.h"

struct Schema : bad::Good {
  static constexpr gannet_param_spec kParams[] = {gannet::sdk::dynamic_number("lr", nullptr, "learning rate")};
  using Good::Good;
};

GANNET_PLUGINS("optimizer/bad@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<Schema>("Bad", "cpu", "1.0", "a hyperparameter without a value"))
