// The kit's process has no LibTorch, so that it has no vendor's half of one.
#include "plugin/note.h"

namespace gannet::plugin {

std::string vendor_of_libtorch() { return ""; }

}  // namespace gannet::plugin
