#include "update/workspace.h"

#include "base/format.h"
#include "base/machine_memory.h"
#include "base/text.h"
#include "interfaces/call.h"

namespace gannet {

// A request beyond the machine's memory is a mistake in the plugin's formula. A smaller one may be
// what a large model really needs.
void Workspace::refuse(uint64_t bytes, at::Device device, const plugin::Plugin& asks) {
  const uint64_t all = machine_memory().physical_bytes;
  const std::string what = formatted("{}: it asks for a workspace of {} for one piece, which cannot be had on {}",
                                     interfaces::who(asks, {"describe"}), size_text(bytes), device.str());
  if (all > 0 && bytes > all) throw plugin::fault(asks, formatted("{}: the machine has {} in all", what, size_text(all)));
  throw Error(ErrorCode::kOutOfMemory, what, "choose another optimizer, or a smaller zero_optimization.sub_group_size");
}

}  // namespace gannet
