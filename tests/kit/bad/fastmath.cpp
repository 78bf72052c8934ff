// A sound rule in a file that is linked with -ffast-math: its start-up object makes denormals 0 in the whole process.
#include "rule.h"

GANNET_PLUGINS("optimizer/fastmath", GANNET_TIER_STABLE, bad::optimizer<bad::Momentum>("FastMath", "", "1.0", "momentum"))
