// The SDK's wall turns what a constructor throws into a sentence.
#include <stdexcept>

#include "bad.h"

struct Throwing : bad::Good {
  Throwing(const gannet_host& host, const gannet::sdk::Params& params) : Good(host, params) {
    throw std::runtime_error("the table of coefficients has 3 rows, 4 are needed");
  }
};

GANNET_PLUGINS("optimizer/bad@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<Throwing>("Bad", "cpu", "1.0", "throws in its constructor"))
