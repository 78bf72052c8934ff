// More parameters than there is memory for.
#include "bad.h"

BAD_NOTE(bad::good_note());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.param_count = uint64_t{1} << 40;
  return descriptor;
}())
