// Shared code of the translated optimizer tables (optimizers_end.h).
#pragma once

#include <gannet/abi.h>

#include <functional>
#include <vector>

namespace gannet::accelerators::checked {

enum class UpdatePass { kUpdate, kSums, kOut };  // written: params, states and out; nothing; out

// Remembers the layout of an optimizer's states, by the address of its object, until forget_states.
void remember_states(void* self, const gannet_optimizer_description& description);
void forget_states(void* self);

// Calls `run` with arguments translated to host addresses. Records the launch on the arguments' stream,
// or on the device's current stream if they have none.
int32_t launch_update(void* self, const gannet_update_args& args, const char* optimizer, UpdatePass pass, gannet_error* error,
                      const std::function<int32_t(const gannet_update_args&)>& run);

}  // namespace gannet::accelerators::checked
