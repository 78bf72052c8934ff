// Calls an undefined function; linked without -z defs, so that only opening it shows.
#include "bad.h"

namespace moments {
void decay(float* moment, int count);
}

struct Calling : bad::Good {
  using Good::Good;
  void update(const gannet_update_args& args) { moments::decay(static_cast<float*>(args.param), 1); }
};

GANNET_PLUGINS("optimizer/bad@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<Calling>("Bad", "cpu", "1.0", "calls into nothing"))
