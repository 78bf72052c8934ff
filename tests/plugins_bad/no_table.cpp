// The note is there, the exported table is not.
#include "bad.h"

BAD_NOTE(bad::good_note());
