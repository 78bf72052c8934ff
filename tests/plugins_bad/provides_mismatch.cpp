// The note promises what the table does not hold.
#include "bad.h"

GANNET_PLUGINS("optimizer/good@cpu", GANNET_TIER_STABLE, bad::good_descriptor())
