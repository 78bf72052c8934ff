// A chain of extensions that is a ring.
#include "bad.h"

static constexpr gannet_extension kExtension{sizeof(gannet_extension), 9, 0, 0, &kExtension};
BAD_NOTE(bad::good_note());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.extensions = &kExtension;
  return descriptor;
}())
