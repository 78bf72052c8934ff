// Opening it kills the process.
#include <csignal>

#include "bad.h"

__attribute__((constructor)) static void crash() { raise(SIGSEGV); }

GANNET_PLUGINS("optimizer/crashes@cpu", GANNET_TIER_STABLE, bad::good_descriptor())
