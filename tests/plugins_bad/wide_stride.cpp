// Parameters so far apart that the second one is out of range.
#include "bad.h"

BAD_NOTE(bad::good_note());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.param_count = 2;
  descriptor.param_stride = uint64_t{1} << 62;
  return descriptor;
}())
