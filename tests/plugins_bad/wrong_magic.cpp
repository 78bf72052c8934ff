#include "bad.h"

BAD_NOTE([] {
  auto note = bad::good_note();
  note.content.magic = 0xfeedface;
  return note;
}());
BAD_TABLE(bad::good_descriptor())
