// Opening it never returns.
#include <unistd.h>

#include "bad.h"

__attribute__((constructor)) static void hang() {
  for (;;) pause();
}

GANNET_PLUGINS("optimizer/hangs@cpu", GANNET_TIER_STABLE, bad::good_descriptor())
