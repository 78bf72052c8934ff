// The kit's process has no LibTorch, so the vendor's half of its fingerprint is empty.
#include "plugin/note.h"

namespace gannet::plugin {

std::string vendor_of_libtorch() { return ""; }

}  // namespace gannet::plugin
