// Without fault, under the name of a plugin of Gannet's own; its words are not fit for a terminal.
#include "bad.h"

GANNET_PLUGINS("optimizer/sgd@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<bad::Good>("SGD", "cpu", "9.9", "\x1b[2Janother descent"))
