// Kinds that have no checks of their own yet but those of every kind.
#include "kit/check.h"

namespace gannet::kit {

std::vector<Check> offload_checks() { return {}; }
std::vector<Check> comm_checks() { return {}; }
std::vector<Check> accelerator_checks() { return {}; }

}  // namespace gannet::kit
