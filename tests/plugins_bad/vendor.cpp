// Uses a vendor's half of LibTorch that is not the one in the process.
#include "bad.h"

BAD_NOTE([] {
  auto note = bad::make_note(GANNET_TIER_STABLE, "cuda=1.0", "optimizer/bad@cpu");
  note.content.vendor = note.content.fingerprint;
  note.content.fingerprint.bytes = 0;
  return note;
}());
BAD_TABLE(bad::good_descriptor())
