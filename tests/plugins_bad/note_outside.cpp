// A text that begins outside of the note.
#include "bad.h"

BAD_NOTE([] {
  auto note = bad::good_note();
  note.content.provides.offset = 4000000000u;
  return note;
}());
BAD_TABLE(bad::good_descriptor())
