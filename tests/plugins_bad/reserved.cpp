// A reserved field with garbage in it.
#include "bad.h"

BAD_NOTE(bad::good_note());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.reserved = 0xdeadbeef;
  return descriptor;
}())
