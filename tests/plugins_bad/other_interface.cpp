// A comm of a later version of the interfaces that are not frozen.
#include "bad.h"

BAD_NOTE([] {
  auto note = bad::make_note(GANNET_TIER_STABLE, "", "comm/bad");
  note.content.interface_versions = 9;
  return note;
}());
BAD_TABLE(bad::good_descriptor())
