// The note is right, the descriptor is of another ABI: two parts built apart.
#include "bad.h"

BAD_NOTE(bad::good_note());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.abi_minor = 7;
  return descriptor;
}())
