// An extension that it cannot do without.
#include "bad.h"

static constexpr gannet_extension kExtension{sizeof(gannet_extension), 9, GANNET_EXTENSION_REQUIRED, 0, nullptr};
BAD_NOTE(bad::good_note());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.extensions = &kExtension;
  return descriptor;
}())
