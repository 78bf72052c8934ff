// The same numbers hold for plugins in C++.
#include "abi_freeze_codes.c"
