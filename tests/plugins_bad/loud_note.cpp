// A note whose names would write to the terminal by themselves.
#include "bad.h"

GANNET_PLUGINS("optimizer/bad@cpu optimizer/\x1b[2J@cpu", GANNET_TIER_STABLE, bad::good_descriptor())
