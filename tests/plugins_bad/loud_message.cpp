// A reason that would clear the terminal of who reads it.
#include "bad.h"

struct Loud : bad::Good {
  Loud(const gannet_host& host, const gannet::sdk::Params& params) : Good(host, params) {
    throw gannet::sdk::Failure(GANNET_UNSUPPORTED, "no \x1b[2Jway\n\tbut this one");
  }
};

GANNET_PLUGINS("optimizer/bad@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<Loud>("Bad", "cpu", "1.0", "an optimizer that shouts"))
