// A capability of 2.2 without its function.
#include "bad.h"

BAD_NOTE(bad::good_note());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.api = &bad::kClaims<GANNET_OPTIMIZER_PERTURBS>;
  return descriptor;
}())
