// It says that it is of the stable tier and is linked to LibTorch (here: to a library of such a name).
#include "bad.h"

GANNET_PLUGINS("optimizer/bad@cpu", GANNET_TIER_STABLE, bad::good_descriptor())
