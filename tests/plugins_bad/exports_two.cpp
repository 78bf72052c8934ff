// Exports a function beside the table, by a version script of its own.
#include "bad.h"

extern "C" __attribute__((visibility("default"))) void helper() {}

GANNET_PLUGINS("optimizer/bad@cpu", GANNET_TIER_STABLE, bad::good_descriptor())
