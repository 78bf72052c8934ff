// A capability that this host does not know.
#include "bad.h"

BAD_NOTE(bad::good_note());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.api = &bad::kClaims<uint64_t{1} << 40>;
  return descriptor;
}())
