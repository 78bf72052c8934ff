// Built for the next major of the plugin ABI. It would crash any host that opens it: the note must
// stop the host before.
#include <cstdlib>

#include "bad.h"

BAD_NOTE([] {
  auto note = bad::good_note();
  note.content.abi_major = 3;
  return note;
}());
BAD_TABLE(bad::good_descriptor())

__attribute__((constructor)) static void on_load() { std::abort(); }
