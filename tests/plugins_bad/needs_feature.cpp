// Has a newer minor, and requires a feature that this host does not have.
#include "bad.h"

BAD_NOTE([] {
  auto note = bad::good_note();
  note.content.abi_minor = 7;
  note.content.required_features = 1u << 5;
  return note;
}());
BAD_TABLE([] {
  auto descriptor = bad::good_descriptor();
  descriptor.abi_minor = 7;
  return descriptor;
}())
