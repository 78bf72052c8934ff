// A name with a space, which separates the names of a note.
#include "bad.h"

GANNET_PLUGINS("optimizer/my bad@cpu", GANNET_TIER_STABLE, bad::optimizer<bad::Good>("my bad", "cpu", "1.0", "an optimizer"))
