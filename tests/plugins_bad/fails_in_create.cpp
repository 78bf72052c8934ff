#include "bad.h"

struct Refusing : bad::Good {
  Refusing(const gannet_host& host, const gannet::sdk::Params& params) : Good(host, params) {
    throw gannet::sdk::Failure(GANNET_UNAVAILABLE, "the coprocessor in slot 2 does not answer; switch it on");
  }
};

GANNET_PLUGINS("optimizer/bad@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<Refusing>("Bad", "cpu", "1.0", "fails with a sentence"))
