// Linked to a library that is not found when it is opened.
#include "bad.h"

void gannet_gone();

struct Calling : bad::Good {
  using Good::Good;
  void update(const gannet_update_args&) { gannet_gone(); }
};

GANNET_PLUGINS("optimizer/bad@cpu", GANNET_TIER_STABLE, gannet::sdk::optimizer<Calling>("Bad", "cpu", "1.0", "needs a library"))
