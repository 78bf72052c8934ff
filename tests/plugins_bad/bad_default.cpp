#include "bad.h"

struct Schema : bad::Good {
  static constexpr gannet_param_spec kParams[] = {
      gannet::sdk::above(gannet::sdk::number("eps", "\"small\"", "added to the denominator"), 0)};
  using Good::Good;
};

GANNET_PLUGINS("optimizer/bad@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<Schema>("Bad", "cpu", "1.0", "a default that is no number"))
