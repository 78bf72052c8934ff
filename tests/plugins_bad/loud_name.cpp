// The same in a descriptor.
#include "bad.h"

BAD_NOTE(bad::good_note());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.version = "1.0\x1b]0;owned\a";
  return descriptor;
}())
