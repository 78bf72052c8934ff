// A file of ABI 1: its note has the same first 24 bytes, and other ones behind them.
#include "bad.h"

BAD_NOTE([] {
  auto note = bad::good_note();
  note.content.abi_major = 1;
  note.content.struct_size = 512;
  note.content_bytes = 512;
  return note;
}());
static constexpr gannet_descriptor gannet_descriptors_[] = {bad::good_descriptor()};
extern "C" {
__attribute__((visibility("default"))) extern const gannet_descriptor* const gannet_plugins_v2[2];
const gannet_descriptor* const gannet_plugins_v2[2] = {&gannet_descriptors_[0], nullptr};
}
