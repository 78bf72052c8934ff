// A text whose default lacks the quotes of JSON.
#include "bad.h"

struct Bare : bad::Good {
  static constexpr gannet_param_spec kParams[] = {bad::text("mode", "plain", "plain|other", "a mode")};
  using Good::Good;
};

GANNET_PLUGINS("optimizer/bad@cpu", GANNET_TIER_STABLE, bad::optimizer<Bare>("Bad", "cpu", "1.0", "an optimizer with a fault"))
